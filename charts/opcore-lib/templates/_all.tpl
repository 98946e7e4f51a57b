{{/*
Everything that an operator's chart installs, checked first. A chart writes

    {{ include "opcore-lib.all" (dict "root" $) }}

and, where its operator needs more than the others, adds what is its own:

    {{ include "opcore-lib.all" (dict "root" $ "own" (include "NAME.own" $ | fromYaml)) }}

`own` may hold: args, env, ports and volumeMounts of the container, volumes of the pod, and egress of the network policy.
All definitions of this library take that dictionary.
*/}}
{{- define "opcore-lib.all" -}}
{{- include "opcore-lib.check" . -}}
{{- range $part := list "crds" "serviceaccount" "rbac" "aggregation" "deployment" "budget" "networkpolicy" "service" "monitors" "alerts" "dashboards" "extra" }}
{{- with include (printf "opcore-lib.%s" $part) $ | trim }}
{{ . }}
{{- end }}
{{- end }}
{{- end }}
