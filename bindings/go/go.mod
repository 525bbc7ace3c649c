module ujoin.dev/go

go 1.24
