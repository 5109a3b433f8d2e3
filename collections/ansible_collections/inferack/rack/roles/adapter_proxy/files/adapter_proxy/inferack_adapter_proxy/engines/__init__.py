"""Engine adapters, one file each: `Options` (a pydantic model), `Adapter` (see `base.Engine`)."""
