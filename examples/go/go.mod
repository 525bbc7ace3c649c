module ujoin.dev/examples

go 1.24

require ujoin.dev/go v0.1.0

replace ujoin.dev/go => ../../bindings/go
