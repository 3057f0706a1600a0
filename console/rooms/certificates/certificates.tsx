/** The certificates of clients: a client that presents one is that client. */
import { useQuery } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import type { Certificate } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import { Button, Code, Id, SelectField, TextField } from '../../design/controls.tsx'
import { Card, Empty, Notice, Time, absoluteTime } from '../../design/display.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { useFormAction } from '../../shell/action.ts'
import { Confirm } from '../../shell/confirm.tsx'
import { saveFile } from '../../shell/files.ts'
import { Filters } from '../../shell/filters.tsx'
import { ClientName } from '../../shell/names.tsx'
import { ShownOnce } from '../../shell/shown-once.tsx'
import { useClientDenied } from '../../shell/permissions.ts'
import { DataTable } from '../../shell/table.tsx'
import { Validity } from '../../shell/validity.tsx'
import { useDomainId, useView, useViews } from '../../shell/url.ts'

const FIELDS = [
  { name: 'client', label: 'Client', of: 'client' },
  { name: 'state', label: 'State', options: ['valid', 'revoked'] },
] as const
const SHOWN_CLIENTS = 100
const DEFAULT_TTL = '8760h'
const PEM = 'application/x-pem-file'

export function Certificates() {
  const domain = useDomainId()
  const [views, setViews] = useViews()
  const [dialog, setDialog] = useView('create')
  const [revoking, setRevoking] = useState<Certificate>()
  const cannotRevoke = useClientDenied(domain, revoking?.client_id)('update')
  const params = { domain_id: domain }
  const filters = {
    entity_id: views['client'],
    revoked: views['state'] === undefined ? undefined : (`${views['state'] === 'revoked'}` as const),
  }
  useEffect(() => {
    document.title = 'Certificates · Skein'
  }, [])
  const revoke = useFormAction('The certificate was not revoked', async () => {
    if (revoking === undefined) return
    await call('POST /{domain_id}/certs/{serial}/revoke', { params: { ...params, serial: revoking.serial_number } })
    setRevoking(undefined)
    return 'Revoked: connections with it end'
  })
  const hasFilter = FIELDS.some(({ name }) => views[name] !== undefined)
  return (
    <>
      <div className="page-head">
        <h1 className="grow">Certificates</h1>
        <Button kind="primary" icon="plus" onClick={() => setDialog('1')}>
          Issue certificate
        </Button>
      </div>
      <Filters fields={FIELDS} hasName={false} />
      <DataTable<Certificate>
        label="Certificates"
        queryKey={['GET /{domain_id}/certs', params, filters]}
        fetchPage={async ({ signal, ...page }) => {
          const found = await call('GET /{domain_id}/certs', {
            params,
            query: { ...filters, ...page },
            signal,
          })
          return { total: found.total, rows: found.certs }
        }}
        rowId={({ serial_number: serial }) => serial}
        columns={[
          {
            key: 'client',
            title: 'Client',
            width: 'minmax(140px, 1.5fr)',
            cell: ({ client_id: client }) => <ClientName domain={domain} id={client} />,
          },
          {
            key: 'serial',
            title: 'Serial number',
            width: 'minmax(140px, 2fr)',
            isMinor: true,
            cell: ({ serial_number: serial }) => <Id id={serial} />,
          },
          {
            key: 'state',
            title: 'State',
            width: '110px',
            cell: (certificate) => <Validity certificate={certificate} />,
          },
          {
            key: 'expires',
            title: 'Expires',
            width: '130px',
            isMinor: true,
            cell: ({ expiry_time: at }) => <Time at={at} isAhead />,
          },
          {
            key: 'actions',
            title: '',
            width: '90px',
            cell: (certificate) =>
              certificate.revoked ? null : (
                <Button kind="quiet" onClick={() => setRevoking(certificate)}>
                  Revoke
                </Button>
              ),
          },
        ]}
        empty={
          <Card>
            {hasFilter ? (
              <Empty
                icon="search"
                title="No certificate matches"
                actions={<Button onClick={() => setViews({ client: '', state: '' })}>Clear filters</Button>}
              />
            ) : (
              <Empty
                icon="certificate"
                title="No certificates yet"
                actions={
                  <Button kind="primary" icon="plus" onClick={() => setDialog('1')}>
                    Issue certificate
                  </Button>
                }
              >
                A client that connects to MQTT over TLS with its certificate needs no secret.
              </Empty>
            )}
          </Card>
        }
      />
      {dialog === '' ? null : <Issue domain={domain} client={views['client'] ?? ''} onClose={() => setDialog('')} />}
      {revoking === undefined ? null : (
        <Confirm
          title="Revoke the certificate"
          submit="Revoke"
          action={revoke}
          disabledReason={cannotRevoke}
          onClose={() => setRevoking(undefined)}
        >
          The certificate with the serial number {revoking.serial_number} becomes invalid, and connections that use it
          end. This cannot be undone.
        </Confirm>
      )}
    </>
  )
}

function Issue({ domain, client: given, onClose }: { domain: string; client: string; onClose: () => void }) {
  const [client, setClient] = useState(given)
  const [ttl, setTtl] = useState(DEFAULT_TTL)
  const [issued, setIssued] = useState<Certificate>()
  const cannotIssue = useClientDenied(domain, client === '' ? undefined : client)('update')
  const clients = useQuery(
    query('GET /{domain_id}/clients', {
      params: { domain_id: domain },
      query: { limit: SHOWN_CLIENTS, order: 'name', dir: 'asc', secrets: false },
    }),
  )
  const issue = useFormAction('The certificate was not issued', async () => {
    setIssued(
      await call('POST /{domain_id}/certs/issue/{client_id}', {
        params: { domain_id: domain, client_id: client },
        body: { ttl },
      }),
    )
  })
  if (issued !== undefined) return <Issued domain={domain} certificate={issued} onClose={onClose} />
  const known = clients.data?.clients ?? []
  const options: [string, string][] = known.map(({ id, name }) => [id, name === '' ? id : name])
  if (given !== '' && !known.some(({ id }) => id === given)) options.unshift([given, given])
  return (
    <FormDialog
      title="Issue a certificate"
      submit="Issue certificate"
      action={issue}
      onClose={onClose}
      disabledReason={client === '' ? 'Choose a client' : cannotIssue}
    >
      <SelectField
        label="Client"
        field="client_id"
        value={client}
        onChange={setClient}
        options={[['', 'Choose a client'], ...options]}
        hint={
          (clients.data?.total ?? 0) > SHOWN_CLIENTS
            ? `These are the first ${SHOWN_CLIENTS} by name. Open others from their own page.`
            : 'The private key is created by the server and shown once.'
        }
      />
      {cannotIssue === undefined ? null : <Notice tone="plain">{cannotIssue}.</Notice>}
      <TextField label="Lifetime" field="ttl" value={ttl} onChange={setTtl} hint="Such as 8760h, a year" />
    </FormDialog>
  )
}

function Issued({
  domain,
  certificate: { client_id: client, certificate, key, expiry_time: expires },
  onClose,
}: {
  domain: string
  certificate: Certificate
  onClose: () => void
}) {
  const [isSaved, setSaved] = useState(false)
  const authority = useQuery(query('GET /certs/view-ca', { isPublic: true }))
  return (
    <ShownOnce
      title="The certificate is issued"
      what="the private key"
      loss="The private key was neither saved nor copied. It cannot be shown again: another certificate would be issued."
      isSaved={isSaved}
      onClose={onClose}
    >
      <p>
        Save the private key now: it is not stored and cannot be shown again. The certificate of{' '}
        <ClientName domain={domain} id={client} /> expires on {absoluteTime(Date.parse(expires))}.
      </p>
      <div className="row wrap">
        <Button
          kind="primary"
          icon="provisioning"
          onClick={() => {
            saveFile('client.key', key, PEM)
            setSaved(true)
          }}
        >
          Private key
        </Button>
        <Button icon="provisioning" onClick={() => saveFile('client.crt', certificate, PEM)}>
          Certificate
        </Button>
        <Button
          icon="provisioning"
          disabledReason={authority.data === undefined ? 'The authority is not known yet' : undefined}
          onClick={() => saveFile('ca.crt', authority.data?.certificate ?? '', PEM)}
        >
          Certificate of the authority
        </Button>
      </div>
      <Code label="private key" text={key} onCopy={() => setSaved(true)} />
      <Code label="certificate" text={certificate} />
    </ShownOnce>
  )
}
