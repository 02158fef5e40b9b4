{{- define "uncork.security" -}}
securityContext:
  runAsNonRoot: true
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- define "uncork.env" -}}
{{- range $name, $value := .Values.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{- define "uncork.tmp" -}}
- name: tmp
  emptyDir:
    medium: Memory
    sizeLimit: 16Mi
{{- end }}

{{- define "uncork.secretMounts" -}}
- name: token
  mountPath: /run/secrets/uncork-workers
  readOnly: true
- name: tls
  mountPath: /run/secrets/uncork-tls
  readOnly: true
{{- end }}
