/** Channels of a domain. */
import { Link, useNavigate } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import type { Channel } from '../../api/operations.ts'
import { Button, TextField } from '../../design/controls.tsx'
import { Card, Empty, EntityStatus, Tags, Time } from '../../design/display.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { paths } from '../../paths.ts'
import { useFormAction } from '../../shell/action.ts'
import { BulkBar } from '../../shell/bulk.tsx'
import { Filters } from '../../shell/filters.tsx'
import { splitTags } from '../../shell/tags.ts'
import { useSelection } from '../../shell/selection.ts'
import { DataTable } from '../../shell/table.tsx'
import { useDomainDenied } from '../../shell/permissions.ts'
import { useDomainId, useView, useViews } from '../../shell/url.ts'

export function Channels() {
  const domain = useDomainId()
  const cannotCreate = useDomainDenied(domain)('channel_create')
  const [views, setViews] = useViews()
  const [dialog, setDialog] = useView('create')
  const [selected, setSelected] = useSelection(`channels ${domain}`)
  const [total, setTotal] = useState(0)
  const params = { domain_id: domain }
  const filters = {
    name: views['name'],
    tags: views['tags'],
    status: (views['status'] ?? 'all') as 'enabled' | 'disabled' | 'all',
    order: (views['order'] ?? 'created_at') as 'name' | 'created_at' | 'updated_at',
    dir: (views['dir'] ?? 'desc') as 'asc' | 'desc',
  }
  useEffect(() => {
    document.title = 'Channels · Skein'
  }, [])
  const fetchPage = async (page: { offset: number; limit: number; signal?: AbortSignal }) => {
    const { signal, ...rest } = page
    const found = await call('GET /{domain_id}/channels', {
      params,
      query: { ...filters, ...rest },
      ...(signal === undefined ? {} : { signal }),
    })
    return { total: found.total, rows: found.channels }
  }
  const hasFilter = filters.name !== undefined || filters.tags !== undefined || filters.status !== 'all'
  return (
    <>
      <div className="page-head">
        <h1 className="grow">Channels</h1>
        <Button kind="primary" icon="plus" disabledReason={cannotCreate} onClick={() => setDialog('1')}>
          New channel
        </Button>
      </div>
      <Filters
        fields={[
          { name: 'tags', label: 'Tags', hint: 'Separated by commas; a channel must have all of them' },
          { name: 'status', label: 'Status', options: ['enabled', 'disabled'] },
        ]}
      />
      <BulkBar
        noun="channel"
        selected={selected}
        total={total}
        onClear={() => setSelected(new Set())}
        onSelect={setSelected}
        fetchIds={async (offset, limit) => {
          const page = await fetchPage({ offset, limit })
          return { total: page.total, ids: page.rows.map(({ id }) => id) }
        }}
        actions={[
          {
            label: 'Enable',
            run: async ([id = '']) =>
              await call('POST /{domain_id}/channels/{channel_id}/enable', {
                params: { ...params, channel_id: id },
              }),
            allows: 409,
          },
          {
            label: 'Disable',
            run: async ([id = '']) =>
              await call('POST /{domain_id}/channels/{channel_id}/disable', {
                params: { ...params, channel_id: id },
              }),
            allows: 409,
          },
          {
            label: 'Delete',
            isDanger: true,
            run: async ([id = '']) =>
              await call('DELETE /{domain_id}/channels/{channel_id}', { params: { ...params, channel_id: id } }),
            allows: 404,
          },
        ]}
      />
      <DataTable<Channel>
        label="Channels"
        queryKey={['GET /{domain_id}/channels', params, filters]}
        fetchPage={fetchPage}
        rowId={({ id }) => id}
        hrefOf={({ id }) => paths.channel(domain, id)}
        onTotal={setTotal}
        selection={{ selected, onSelect: setSelected }}
        sort={{ order: filters.order, dir: filters.dir, onSort: (order, dir) => setViews({ order, dir }) }}
        columns={[
          {
            key: 'name',
            title: 'Name',
            width: 'minmax(160px, 2fr)',
            order: 'name',
            cell: (channel) => (
              <Link className="main" dir="auto" tabIndex={-1} to={paths.channel(domain, channel.id)}>
                {channel.name === '' ? channel.id : channel.name}
              </Link>
            ),
          },
          { key: 'status', title: 'Status', width: '100px', cell: ({ status }) => <EntityStatus status={status} /> },
          {
            key: 'route',
            title: 'Route',
            width: 'minmax(100px, 1fr)',
            isMinor: true,
            cell: ({ route }) =>
              route === undefined || route === '' ? <span className="muted">none</span> : <code>{route}</code>,
          },
          {
            key: 'tags',
            title: 'Tags',
            width: 'minmax(120px, 1fr)',
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
            width: '110px',
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
                title="No channel matches"
                actions={<Button onClick={() => setViews({ name: '', tags: '', status: '' })}>Clear filters</Button>}
              />
            ) : (
              <Empty
                icon="channel"
                title="No channels yet"
                actions={
                  <Button kind="primary" icon="plus" disabledReason={cannotCreate} onClick={() => setDialog('1')}>
                    New channel
                  </Button>
                }
              >
                A channel takes the messages of the clients that are connected to it, stores them and hands them to
                subscribers and tasks.
              </Empty>
            )}
          </Card>
        }
      />
      {dialog === '' || cannotCreate !== undefined ? null : (
        <NewChannel domain={domain} onClose={() => setDialog('')} />
      )}
    </>
  )
}

function NewChannel({ domain, onClose }: { domain: string; onClose: () => void }) {
  const navigate = useNavigate()
  const [name, setName] = useState('')
  const [route, setRoute] = useState('')
  const [tags, setTags] = useState('')
  const create = useFormAction('The channel was not created', async () => {
    const channel = await call('POST /{domain_id}/channels', {
      params: { domain_id: domain },
      body: { name: name.trim(), tags: splitTags(tags), ...(route.trim() === '' ? {} : { route: route.trim() }) },
    })
    await navigate({ to: paths.channel(domain, channel.id) })
  })
  return (
    <FormDialog title="New channel" submit="Create channel" action={create} onClose={onClose}>
      <TextField label="Name" field="name" value={name} onChange={setName} autoFocus required maxLength={1024} />
      <TextField
        label="Route"
        field="route"
        value={route}
        onChange={setRoute}
        hint="A short name for topics and addresses, such as hall-1. Optional."
      />
      <TextField label="Tags" field="tags" value={tags} onChange={setTags} hint="Separated by commas. Optional." />
    </FormDialog>
  )
}
