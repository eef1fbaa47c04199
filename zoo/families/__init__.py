"""Sources of models: each file has ``models()``, functions that build them, by name."""
