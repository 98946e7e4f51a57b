module opcore.dev/components/git-server

go 1.25.0
