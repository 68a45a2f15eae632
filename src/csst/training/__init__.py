"""Training a network: the loop, its batches, records, selection, several processes, cross-fitting and generations."""
