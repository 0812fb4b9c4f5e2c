"""Neural PDE emulators on the same engine: fields rolled forward without actions."""
