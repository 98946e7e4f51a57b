{{/*
A file of the chart as an object; nothing for a file that is not there. A broken one fails: `fromYaml` alone would hand on
its error as if it were content. Beside `root`: `path`, and `template: true` for a file that may use templates.
*/}}
{{- define "opcore-lib.file" -}}
{{- $text := .root.Files.Get .path }}
{{- if .template }}{{ $text = tpl $text .root }}{{ end }}
{{- $content := fromYaml $text }}
{{- with $content.Error }}{{ fail (printf "%s of this chart cannot be parsed: %s" $.path .) }}{{ end }}
{{- toYaml $content }}
{{- end }}

{{/* Fails for a key that means nothing: a misspelt one would be ignored. Beside `content`: the keys `known`, and `where`. */}}
{{- define "opcore-lib.keys" -}}
{{- range $key, $_ := .content }}
{{- if not (has $key $.known) }}
{{- fail (printf "%s of this chart has the unknown key %q; allowed keys: %s." $.where $key (join ", " $.known)) }}
{{- end }}
{{- end }}
{{- end }}
