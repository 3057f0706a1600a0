/** Clients of a domain: any number of them, filters in the address, actions on many at once. */
import { Link, useNavigate } from '@tanstack/react-router'
import { useEffect, useRef, useState } from 'react'
import { call } from '../../api/call.ts'
import type { Client } from '../../api/operations.ts'
import { Button, Code, TextField } from '../../design/controls.tsx'
import { Card, Empty, EntityStatus, State, Tags, Time } from '../../design/display.tsx'
import { Dialog, FormDialog } from '../../design/layers.tsx'
import { paths } from '../../paths.ts'
import { useFormAction } from '../../shell/action.ts'
import { BulkBar } from '../../shell/bulk.tsx'
import { Filters } from '../../shell/filters.tsx'
import { splitTags } from '../../shell/tags.ts'
import { useSelection } from '../../shell/selection.ts'
import { DataTable } from '../../shell/table.tsx'
import { useDomainDenied, useManyClientsDenied } from '../../shell/permissions.ts'
import { useDomainId, useView, useViews } from '../../shell/url.ts'
import { ChannelField } from './choice.tsx'
import { clientActions, exportClients } from './client-actions.tsx'
import { OutOfSync } from './desired/out-of-sync.tsx'
import { NewestValue } from './newest-value.tsx'

/** Whether clients are online is up to a second old. */
const REFRESH_MS = 10_000
const ALL_STATUSES = 'all'
const OUT_OF_SYNC = 'out of sync'
type Status = 'enabled' | 'disabled' | 'all'

export function useClientFilters() {
  const [views] = useViews()
  return {
    name: views['name'],
    tags: views['tags'],
    status: (views['status'] ?? ALL_STATUSES) as Status,
    channel: views['channel'],
    group: views['group'],
    out_of_sync: views['sync'] === undefined ? undefined : views['sync'] === OUT_OF_SYNC,
    reported: views['reported'],
    online: views['state'] === undefined ? undefined : views['state'] === 'online',
    order: (views['order'] ?? 'created_at') as 'name' | 'created_at' | 'updated_at' | 'online' | 'last_seen',
    dir: (views['dir'] ?? 'desc') as 'asc' | 'desc',
  }
}

export function Clients() {
  const domain = useDomainId()
  const cannotCreate = useDomainDenied(domain)('client_create')
  const denied = {
    command: useManyClientsDenied(domain, 'command', 'client_command'),
    state: useManyClientsDenied(domain, 'state_update', 'client_state_update'),
  }
  const navigate = useNavigate()
  const filters = useClientFilters()
  const [, setViews] = useViews()
  const [dialog, setDialog] = useView('create')
  const [selected, setSelected] = useSelection(`clients ${domain}`)
  const [total, setTotal] = useState(0)
  const params = { domain_id: domain }
  useEffect(() => {
    document.title = 'Clients · Skein'
  }, [])
  const fetchPage = async ({ offset, limit, signal }: { offset: number; limit: number; signal?: AbortSignal }) => {
    const page = await call('GET /{domain_id}/clients', {
      params,
      query: { ...filters, secrets: false, offset, limit },
      ...(signal === undefined ? {} : { signal }),
    })
    return { total: page.total, rows: page.clients }
  }
  const hasFilter =
    filters.name !== undefined ||
    filters.tags !== undefined ||
    filters.online !== undefined ||
    filters.out_of_sync !== undefined ||
    filters.reported !== undefined ||
    filters.status !== ALL_STATUSES
  return (
    <>
      <div className="page-head">
        <h1 className="grow">Clients</h1>
        <Button icon="provisioning" onClick={() => void navigate({ to: paths.imports(domain) })}>
          Import
        </Button>
        <Link className="button" to={paths.connectDevice(domain)}>
          Connect a device
        </Link>
        <Button kind="primary" icon="plus" disabledReason={cannotCreate} onClick={() => setDialog('1')}>
          New client
        </Button>
      </div>
      <Filters
        fields={[
          { name: 'tags', label: 'Tags', hint: 'Separated by commas; a client must have all of them' },
          { name: 'state', label: 'State', options: ['online', 'offline'] },
          { name: 'status', label: 'Status', options: ['enabled', 'disabled'] },
          { name: 'sync', label: 'Desired state', options: [OUT_OF_SYNC, 'in sync'] },
          { name: 'reported', label: 'Reported', hint: 'A JSON object that the reported state contains' },
        ]}
      />
      <BulkBar
        noun="client"
        selected={selected}
        total={total}
        onClear={() => setSelected(new Set())}
        onSelect={setSelected}
        fetchIds={async (offset, limit) => {
          const page = await fetchPage({ offset, limit })
          return { total: page.total, ids: page.rows.map(({ id }) => id) }
        }}
        actions={clientActions(domain, denied)}
        onExport={async (ids) => await exportClients(domain, ids)}
      />
      <DataTable<Client>
        label="Clients"
        queryKey={['GET /{domain_id}/clients', params, filters]}
        fetchPage={fetchPage}
        rowId={({ id }) => id}
        hrefOf={({ id }) => paths.client(domain, id)}
        onTotal={setTotal}
        refetchMs={REFRESH_MS}
        selection={{ selected, onSelect: setSelected }}
        sort={{ order: filters.order, dir: filters.dir, onSort: (order, dir) => setViews({ order, dir }) }}
        columns={[
          {
            key: 'name',
            title: 'Name',
            width: 'minmax(140px, 2fr)',
            order: 'name',
            cell: (client) => (
              <Link className="main" dir="auto" tabIndex={-1} to={paths.client(domain, client.id)}>
                {client.name === '' ? client.id : client.name}
              </Link>
            ),
          },
          {
            key: 'online',
            title: 'State',
            width: '100px',
            order: 'online',
            cell: ({ online }) =>
              online === true ? <State tone="ok">Online</State> : <State tone="idle">Offline</State>,
          },
          {
            key: 'newest',
            title: 'Newest value',
            width: 'minmax(84px, 1fr)',
            isMinor: true,
            cell: ({ id }) => <NewestValue domain={domain} client={id} />,
          },
          {
            key: 'sync',
            title: 'Desired state',
            width: '100px',
            isMinor: true,
            cell: ({ id }) => <OutOfSync domain={domain} client={id} />,
          },
          {
            key: 'seen',
            title: 'Last seen',
            width: '100px',
            order: 'last_seen',
            isMinor: true,
            cell: ({ last_seen: at }) => <Time at={at} />,
          },
          {
            key: 'status',
            title: 'Status',
            width: '88px',
            isMinor: true,
            cell: ({ status }) => <EntityStatus status={status} />,
          },
          {
            key: 'tags',
            title: 'Tags',
            width: 'minmax(84px, 1fr)',
            isMinor: true,
            cell: ({ tags }) => (
              <span className="row">
                <Tags tags={tags} />
              </span>
            ),
          },
          {
            key: 'created',
            title: 'Created',
            width: '96px',
            order: 'created_at',
            isMinor: true,
            cell: ({ created_at: at }) => <Time at={at} />,
          },
        ]}
        empty={
          <Card>
            {hasFilter ? (
              <Empty
                icon="search"
                title="No client matches"
                actions={
                  <Button
                    onClick={() => setViews({ name: '', tags: '', state: '', status: '', sync: '', reported: '' })}
                  >
                    Clear filters
                  </Button>
                }
              />
            ) : (
              <Empty
                icon="client"
                title="No clients yet"
                actions={
                  <>
                    <Link className="button primary" to={paths.connectDevice(domain)}>
                      Connect a device
                    </Link>
                    <Button onClick={() => void navigate({ to: paths.imports(domain) })}>Import a CSV file</Button>
                  </>
                }
              >
                A client is a device or an application. It has a secret and publishes to the channels that it is
                connected to.
              </Empty>
            )}
          </Card>
        }
      />
      {dialog === '' || cannotCreate !== undefined ? null : <NewClient domain={domain} onClose={() => setDialog('')} />}
    </>
  )
}

function NewClient({ domain, onClose }: { domain: string; onClose: () => void }) {
  const navigate = useNavigate()
  const [name, setName] = useState('')
  const [tags, setTags] = useState('')
  const [channel, setChannel] = useState('')
  const [made, setMade] = useState<Client>()
  const created = useRef<Client>(undefined)
  const create = useFormAction('The client was not created', async () => {
    const params = { domain_id: domain }
    // A client whose connection failed is not created again.
    const client = (created.current ??= await call('POST /{domain_id}/clients', {
      params,
      body: { name: name.trim(), tags: splitTags(tags) },
    }))
    if (channel !== '')
      await call('POST /{domain_id}/channels/connect', {
        params,
        body: { client_ids: [client.id], channel_ids: [channel], types: ['publish', 'subscribe'] },
      })
    setMade(client)
  })
  if (made !== undefined) {
    const leave = () => void navigate({ to: paths.client(domain, made.id) })
    return (
      <Dialog
        title={`${made.name === '' ? 'The client' : made.name} is created`}
        onClose={leave}
        footer={
          <Button kind="primary" onClick={leave}>
            Open the client
          </Button>
        }
      >
        <p>Its secret. You can show it again on the page of the client.</p>
        <Code label="secret" text={made.credentials.secret} />
      </Dialog>
    )
  }
  return (
    <FormDialog title="New client" submit="Create client" action={create} onClose={onClose}>
      <TextField label="Name" field="name" value={name} onChange={setName} autoFocus required maxLength={1024} />
      <TextField label="Tags" field="tags" value={tags} onChange={setTags} hint="Separated by commas. Optional." />
      <ChannelField
        domain={domain}
        label="Connect to channel"
        field="channel_ids"
        value={channel}
        onChange={setChannel}
        none="None"
        hint="It can publish and subscribe there."
      />
    </FormDialog>
  )
}
