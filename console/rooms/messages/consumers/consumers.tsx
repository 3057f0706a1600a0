/** Named consumers of a domain, or of one of its channels: which programs take messages, and how far they are behind. */
import { Link, useNavigate } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call } from '../../../api/call.ts'
import type { Consumer } from '../../../api/operations.ts'
import { Button } from '../../../design/controls.tsx'
import { Card, Empty, State, Time, formatCount } from '../../../design/display.tsx'
import { FormDialog } from '../../../design/layers.tsx'
import { paths } from '../../../paths.ts'
import { useFormAction } from '../../../shell/action.ts'
import { Filters } from '../../../shell/filters.tsx'
import { ChannelName } from '../../../shell/names.tsx'
import { useDomainDenied } from '../../../shell/permissions.ts'
import { DataTable } from '../../../shell/table.tsx'
import { useDomainId, useView, useViews } from '../../../shell/url.ts'
import { ConsumerFields, FromFields } from './fields.tsx'
import { FROM_LATEST, bodyOf, formOf, fromOf, standingOf } from './form.ts'
import type { ConsumerForm } from './form.ts'

const REFRESH_MS = 5_000

export function Consumers() {
  const domain = useDomainId()
  const cannotCreate = useDomainDenied(domain)('consumer_create')
  const [dialog, setDialog] = useView('create')
  useEffect(() => {
    document.title = 'Consumers · Skein'
  }, [])
  return (
    <>
      <div className="page-head">
        <h1 className="grow">Consumers</h1>
        <Button kind="primary" icon="plus" disabledReason={cannotCreate} onClick={() => setDialog('1')}>
          New consumer
        </Button>
      </div>
      <Filters fields={[{ name: 'channel', label: 'Channel', hint: 'That it reads', of: 'channel' }]} />
      <ConsumerTable domain={domain} />
      {dialog === '' || cannotCreate !== undefined ? null : (
        <NewConsumer domain={domain} onClose={() => setDialog('')} />
      )}
    </>
  )
}

/** The tab of a channel. */
export function ConsumersOfChannel({ domain, channel }: { domain: string; channel: string }) {
  const cannotCreate = useDomainDenied(domain)('consumer_create')
  const [isCreating, setCreating] = useState(false)
  return (
    <>
      <div className="row">
        <p className="grow muted">Programs that take the messages of this channel, and acknowledge each of them.</p>
        <Button icon="plus" disabledReason={cannotCreate} onClick={() => setCreating(true)}>
          New consumer
        </Button>
      </div>
      <ConsumerTable domain={domain} channel={channel} />
      {isCreating ? <NewConsumer domain={domain} channel={channel} onClose={() => setCreating(false)} /> : null}
    </>
  )
}

function ConsumerTable({ domain, channel }: { domain: string; channel?: string }) {
  const [views, setViews] = useViews()
  const params = { domain_id: domain }
  const filters = channel === undefined ? { name: views['name'], channel: views['channel'] } : { channel }
  const hasFilter = channel === undefined && (views['name'] ?? views['channel'] ?? '') !== ''
  return (
    <DataTable<Consumer>
      label="Consumers"
      queryKey={['GET /{domain_id}/consumers', params, filters]}
      refetchMs={REFRESH_MS}
      fetchPage={async ({ signal, ...page }) => {
        const query = { ...filters, ...page }
        const { total, consumers: rows } = await call('GET /{domain_id}/consumers', { params, query, signal })
        return { total, rows }
      }}
      rowId={({ id }) => id}
      hrefOf={({ id }) => paths.consumer(domain, id)}
      columns={[
        {
          key: 'name',
          title: 'Name',
          width: 'minmax(120px, 2fr)',
          cell: ({ id, name }) => (
            <Link className="main" tabIndex={-1} to={paths.consumer(domain, id)}>
              {name}
            </Link>
          ),
        },
        { key: 'state', title: 'State', width: '150px', cell: (consumer) => <Standing consumer={consumer} /> },
        {
          key: 'behind',
          title: 'Waits since',
          width: '110px',
          isMinor: true,
          cell: ({ behind_since: behind }) =>
            behind === undefined ? <span className="muted">none waits</span> : <Time at={behind} />,
        },
        {
          key: 'flight',
          title: 'In flight',
          width: '80px',
          isMinor: true,
          cell: ({ in_flight: count }) => formatCount(count),
        },
        {
          key: 'letters',
          title: 'Dead letters',
          width: '100px',
          isMinor: true,
          cell: ({ dead_letters: count }) => formatCount(count),
        },
        {
          key: 'channels',
          title: 'Channels',
          width: 'minmax(120px, 2fr)',
          isMinor: true,
          cell: ({ channels }) => <SomeChannels domain={domain} channels={channels} />,
        },
      ]}
      empty={
        <Card>
          {hasFilter ? (
            <Empty
              icon="search"
              title="No consumer matches"
              actions={<Button onClick={() => setViews({ name: '', channel: '' })}>Clear filters</Button>}
            />
          ) : (
            <Empty icon="consumer" title="No consumers yet">
              A named consumer keeps the messages of its channels for a program until that has acknowledged them.
              Several callers share the work.
            </Empty>
          )}
        </Card>
      }
    />
  )
}

export function Standing({ consumer }: { consumer: Consumer }) {
  const { tone, text } = standingOf(consumer)
  return <State tone={tone}>{text}</State>
}

/** The first one, and the number of the others. */
function SomeChannels({ domain, channels }: { domain: string; channels: readonly string[] }) {
  const [first, ...others] = channels
  if (first === undefined) return <span className="muted">deleted</span>
  return (
    <span className="clip">
      <ChannelName domain={domain} id={first} />
      {others.length === 0 ? null : <span className="muted"> and {formatCount(others.length)} more</span>}
    </span>
  )
}

function NewConsumer({ domain, channel, onClose }: { domain: string; channel?: string; onClose: () => void }) {
  const navigate = useNavigate()
  const [form, setForm] = useState<ConsumerForm>(() => ({
    ...formOf(undefined),
    channels: channel === undefined ? [] : [channel],
  }))
  const [from, setFrom] = useState(FROM_LATEST)
  const create = useFormAction('The consumer was not created', async () => {
    const { id } = await call('POST /{domain_id}/consumers', {
      params: { domain_id: domain },
      body: { ...bodyOf(form), from: fromOf(from) },
    })
    await navigate({ to: paths.consumer(domain, id) })
  })
  return (
    <FormDialog
      title="New consumer"
      submit="Create consumer"
      action={create}
      onClose={onClose}
      disabledReason={form.channels.length === 0 ? 'Choose a channel first' : undefined}
    >
      <ConsumerFields domain={domain} form={form} onChange={setForm} />
      <FromFields from={from} onChange={setFrom} />
    </FormDialog>
  )
}
