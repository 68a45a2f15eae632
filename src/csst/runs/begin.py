"""The fit of a recipe: its task as the learner takes it, and the learner."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from csst.data import Arrays
from csst.data.embeddings import embed_parts, embed_task
from csst.data.examples import InputSpec
from csst.data.task import Task
from csst.errors import InputError
from csst.fitting.fit import begin
from csst.fitting.model_file import load_embedder, make_embedder
from csst.fitting.network_fit import Fit
from csst.learners.network import Network, build_network, scale_task
from csst.recipes.recipe import Recipe
from csst.rules.fresh_labels import deal_certifying
from csst.training.trainer import Trainer


def begin_recipe(recipe: Recipe) -> Fit:
    """Return the fit of a recipe before its first step."""
    task = load_task(recipe)
    objective = recipe.bind_objective(task.class_names)
    prior = recipe.deployment_prior
    if recipe.uses_network:
        make = partial(build_network, recipe.network, task, recipe.seed)
        network = Network(make, recipe.method, recipe, recipe.folds)
        return begin(
            task, network, objective, fits_rule=recipe.rule != "none", deployment_prior=prior, seed=recipe.seed
        )
    rows = embed_rows(task, recipe, f"learner {recipe.learner}")
    inputs = InputSpec(rows.kind, task.input_shape)
    if recipe.frozen:
        embedder = make_embedder(recipe, rows.kind, rows.facts["encoder"])
        inputs = InputSpec(rows.kind, rows.input_shape, embed=embedder, is_embedded=True)
    return begin(
        rows,
        recipe.learner,
        objective,
        deployment_prior=None if prior == "validation" else prior,
        inputs=inputs,
        seed=recipe.seed,
        rounds=recipe.rounds,
        tau=recipe.selftraining.tau,
        certifying=recipe.certifying,
        per_group=recipe.per_group,
    )


def assemble(recipe: Recipe) -> Trainer:
    """Return the trainer of a recipe's network before its first step; of the first generation if there are several."""
    trainer: Trainer = begin_recipe(replace(recipe, learner="network")).runner.trainer
    return trainer


def load_examples(recipe: Recipe) -> Task:
    """Load the examples of a recipe; for a network, those that certify bounds are set apart."""
    task = recipe.data.load(recipe.seed, recipe.holds_out)
    if not recipe.uses_network:
        return task
    objective = recipe.bind_objective(task.class_names)
    return deal_certifying(task, objective, recipe.deployment_prior, recipe.seed, recipe.certifying, True)


def load_task(recipe: Recipe) -> Task:
    """Load the examples of a recipe as its learner takes them; a frozen encoder embeds those of a network.

    With cross-fitting (`folds`) the validation examples are learned from as well.
    """
    task = load_examples(recipe)
    task = replace(task, row_hashes=task.hash_rows())
    if not recipe.uses_network:
        return replace(task.join_validation(), validation=None) if recipe.folds else task
    if recipe.folds:
        task = task.join_validation()
    if isinstance(recipe.data, Arrays) and task.moments is not None:  # a table is scaled as by CSSTClassifier
        task = scale_task(task, recipe.seed)
    if recipe.frozen:
        task = embed_task(task, load_embedder(recipe, task.kind))
    return task


def refuse_changed(task: Task, split_hash: str) -> None:
    """Raise an error if a task is not the one of a run, by the fingerprint that the run has kept."""
    if task.split_hash != split_hash:
        raise InputError(f"the data has changed since the run (split {split_hash}, now {task.split_hash})")


def embed_rows(task: Task, recipe: Recipe, learner: str) -> Task:
    """Return the task as rows of numbers sorted by content, embedded by the recipe's encoder if it has one.

    Args:
        task: examples of any kind.
        recipe: names the encoder.
        learner: who takes the rows, for the error.
    """
    if recipe.frozen:
        task = embed_parts(task, load_embedder(recipe, task.kind))
    elif task.kind == "text":
        raise InputError(f"{learner} takes numbers, and these inputs are texts: add --encoder words --frozen")
    return task.flattened().in_content_order()
