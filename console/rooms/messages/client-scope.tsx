/** Which clients a rule or a maintenance window is about. */
import { TextField } from '../../design/controls.tsx'
import { EntityChoice } from '../../shell/entity-choice.tsx'

export type ClientScope = {
  /** Separated by commas. */
  tags: string
  clients: readonly string[]
  groups: readonly string[]
}

export function ClientScopeFields({
  domain,
  scope,
  onChange,
  path = '',
}: {
  domain: string
  scope: ClientScope
  onChange: (changes: Partial<ClientScope>) => void
  /** The beginning of the names of the fields in the request, such as `source.`. */
  path?: string
}) {
  return (
    <>
      <TextField
        label="Tags"
        field={`${path}tags`}
        value={scope.tags}
        onChange={(tags) => onChange({ tags })}
        hint="Only clients with one of these, separated by commas"
      />
      <EntityChoice
        type="client"
        domain={domain}
        field={`${path}clients`}
        chosen={scope.clients}
        onChange={(clients) => onChange({ clients })}
        hint="None: all clients"
      />
      <EntityChoice
        type="group"
        domain={domain}
        field={`${path}groups`}
        chosen={scope.groups}
        onChange={(groups) => onChange({ groups })}
        hint="Only clients in these groups, and in the groups below them. None: all clients"
      />
    </>
  )
}
