{{/* What only this operator has. */}}
{{- define "shelf-operator.own" -}}
args: [--sorted]
{{- with .Values.catalogue.url }}
env:
  - name: SHELF_CATALOGUE
    value: {{ . | quote }}
{{- end }}
ports:
  - name: catalogue
    containerPort: 9443
volumes:
  - name: scratch
    emptyDir: {}
volumeMounts:
  - name: scratch
    mountPath: /tmp
egress:
  - ports:
      - port: 8443
        protocol: TCP
{{- end }}
