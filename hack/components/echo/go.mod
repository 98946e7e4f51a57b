module opcore.dev/components/echo

go 1.25.0
