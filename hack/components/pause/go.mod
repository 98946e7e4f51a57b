module opcore.dev/components/pause

go 1.25.0
