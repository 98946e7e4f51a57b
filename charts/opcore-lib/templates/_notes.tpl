{{/* The notes that Helm prints after an installation. A chart's templates/NOTES.txt includes it. */}}
{{- define "opcore-lib.notes" -}}
{{- $values := .root.Values }}
{{- $kinds := (include "opcore-lib.kinds" . | fromYaml).kinds | default list }}
{{- $names := list }}
{{- range $kinds }}{{ $names = append $names (printf "%s.%s" .resource .group) }}{{ end -}}
{{ include "opcore-lib.name" . }} {{ .root.Chart.AppVersion }} is in namespace {{ .root.Release.Namespace }} and watches {{ $values.watchNamespaces | join ", " | default "all namespaces" }}.

  kubectl --namespace {{ .root.Release.Namespace }} rollout status deployment/{{ include "opcore-lib.fullname" . }}
{{- with $names }}
  kubectl get {{ join "," . }} --all-namespaces
{{- end }}
{{- if and $names $values.crds.install }}
{{ if $values.crds.keep }}
helm uninstall keeps the kinds and their objects. Remove them, and with them every object, with:

  kubectl delete crd {{ join " " $names }}
{{- else }}
crds.keep is false: helm uninstall deletes the kinds and every object of theirs.
{{- end }}
{{- end }}
{{- end }}
