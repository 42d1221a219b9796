"""poslens: where Transformers know position from, measured."""
