"""Models of the Hugging Face library: classifiers of images and texts, translators."""
