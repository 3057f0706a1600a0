/** The tabs of a channel that have no charts: its messages as they arrive, its clients, what it is. */
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import { call } from '../../api/call.ts'
import type { Channel as ChannelRecord } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import { Button, CopyButton, Id, Segments, SelectField, TextField } from '../../design/controls.tsx'
import { Card, Empty, Facts, Notice, State, Tags, Time, absoluteTime, formatCount } from '../../design/display.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { paths } from '../../paths.ts'
import { useAction, useFormAction } from '../../shell/action.ts'
import { ClientName } from '../../shell/names.tsx'
import { useChannelDenied } from '../../shell/permissions.ts'
import { QueryView } from '../../shell/states.tsx'
import { describePayload } from './live.ts'
import type { Live, Sending } from './live.ts'

const STREAM_WORDS = {
  connecting: ['active', 'Connecting'],
  open: ['ok', 'Live'],
  waiting: ['warn', 'Interrupted; connecting again'],
  ended: ['bad', 'Ended'],
} as const

export function LiveTable({ domain, live, cannotSend, onSend }: Sending & { domain: string; live: Live }) {
  const [tone, word] = STREAM_WORDS[live.state]
  return (
    <Card
      flush
      title={
        <span className="row">
          <State tone={live.isPaused ? 'warn' : tone} {...(live.isPaused ? { icon: 'pause' as const } : {})}>
            {live.isPaused ? 'Paused' : word}
          </State>
          <span className="muted small">{formatCount(live.received)} received</span>
        </span>
      }
      actions={
        <Button icon={live.isPaused ? 'play' : 'pause'} onClick={() => live.pause(!live.isPaused)}>
          {live.isPaused ? `Resume${live.waiting === 0 ? '' : ` (${formatCount(live.waiting)} new)`}` : 'Pause'}
        </Button>
      }
    >
      {live.messages.length === 0 ? (
        <Empty
          icon="channel"
          title="Waiting for messages"
          actions={
            <Button disabledReason={cannotSend} onClick={onSend}>
              Send one
            </Button>
          }
        >
          Each message appears here when it is stored, whatever protocol it came by.
        </Empty>
      ) : (
        <div className="scroll-x" tabIndex={0} role="region" aria-label="Messages">
          <table className="plain">
            <thead>
              <tr>
                <th>Time</th>
                <th>Publisher</th>
                <th>Subtopic</th>
                <th>By</th>
                <th>Message</th>
              </tr>
            </thead>
            <tbody>
              {live.messages.slice(0, 200).map((message) => (
                <tr key={message.id}>
                  <td title={absoluteTime(message.atMs)} style={{ whiteSpace: 'nowrap' }}>
                    {new Date(message.atMs).toLocaleTimeString(undefined, { hourCycle: 'h23' })}
                  </td>
                  <td style={{ whiteSpace: 'nowrap' }}>
                    <ClientName domain={domain} id={message.publisher} />
                  </td>
                  <td>
                    {message.subtopic === '' ? <span className="muted">none</span> : <code>{message.subtopic}</code>}
                  </td>
                  <td>{message.protocol}</td>
                  <td className="mono">{describePayload(message.payload)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Card>
  )
}

export function AboutChannel({ channel }: { channel: ChannelRecord }) {
  const topic = `m/${channel.domain_id}/c/${channel.id}`
  return (
    <Card>
      <Facts
        rows={[
          ['Id', <Id key="id" id={channel.id} />],
          [
            'Topic',
            <span key="topic" className="row">
              <code>{topic}</code>
              <CopyButton text={topic} label="Copy topic" />
            </span>,
          ],
          [
            'Route',
            channel.route === undefined || channel.route === '' ? (
              <span key="route" className="muted">
                none
              </span>
            ) : (
              <code key="route">{channel.route}</code>
            ),
          ],
          [
            'Description',
            channel.description ?? (
              <span key="description" className="muted">
                none
              </span>
            ),
          ],
          ['Tags', <Tags key="tags" tags={channel.tags} />],
          ['Retention', channel.retention_days === undefined ? 'as the domain' : `${channel.retention_days} days`],
          ['Created', <Time key="created" at={channel.created_at} />],
          ['Changed', <Time key="changed" at={channel.updated_at} />],
        ]}
      />
      {channel.status === 'enabled' ? null : (
        <Notice tone="warn">The channel is disabled: messages to it are refused.</Notice>
      )}
    </Card>
  )
}

export function ClientsOfChannel({ domain, channel }: { domain: string; channel: string }) {
  const params = { domain_id: domain, channel_id: channel }
  const publishers = useQuery(
    query('GET /{domain_id}/channels/{channel_id}/clients', {
      params,
      query: { limit: 100, connection_type: 'publish', status: 'all' },
    }),
  )
  const subscribers = useQuery(
    query('GET /{domain_id}/channels/{channel_id}/clients', {
      params,
      query: { limit: 100, connection_type: 'subscribe', status: 'all' },
    }),
  )
  const [isAdding, setAdding] = useState(false)
  const cannotConnect = useChannelDenied(domain, channel)('connect_to_client')
  const [disconnect] = useAction('The client was not disconnected', async (client: string) => {
    await call('POST /{domain_id}/channels/disconnect', {
      params: { domain_id: domain },
      body: { client_ids: [client], channel_ids: [channel], types: ['publish', 'subscribe'] },
    })
    return 'Disconnected'
  })
  return (
    <QueryView result={publishers} entity={`channel:${channel}`}>
      {({ clients: publishing, total }) => {
        const subscribing = subscribers.data?.clients ?? []
        const all = new Map([...publishing, ...subscribing].map((client) => [client.id, client]))
        return (
          <Card
            title={`${formatCount(Math.max(total, subscribers.data?.total ?? 0, all.size))} connected clients`}
            flush
            actions={
              <Button icon="plus" disabledReason={cannotConnect} onClick={() => setAdding(true)}>
                Connect
              </Button>
            }
          >
            {all.size === 0 ? (
              <Empty icon="client" title="No client is connected" />
            ) : (
              [...all.values()].map((client) => (
                <div key={client.id} className="list-row">
                  <Link className="grow clip" dir="auto" to={paths.client(domain, client.id)}>
                    {client.name === '' ? client.id : client.name}
                  </Link>
                  {publishing.some(({ id }) => id === client.id) ? <span className="tag">publish</span> : null}
                  {subscribing.some(({ id }) => id === client.id) ? <span className="tag">subscribe</span> : null}
                  <Button
                    small
                    kind="quiet"
                    icon="close"
                    label={`Disconnect ${client.name}`}
                    disabledReason={cannotConnect}
                    onClick={() => void disconnect(client.id)}
                  />
                </div>
              ))
            )}
            {isAdding ? <Connect domain={domain} channel={channel} onClose={() => setAdding(false)} /> : null}
          </Card>
        )
      }}
    </QueryView>
  )
}

const TYPES = { both: ['publish', 'subscribe'], publish: ['publish'], subscribe: ['subscribe'] } as const

function Connect({ domain, channel, onClose }: { domain: string; channel: string; onClose: () => void }) {
  const [name, setName] = useState('')
  const [client, setClient] = useState('')
  const [types, setTypes] = useState<keyof typeof TYPES>('both')
  const clients = useQuery(
    query('GET /{domain_id}/clients', {
      params: { domain_id: domain },
      query: { limit: 100, order: 'name', dir: 'asc', name },
    }),
  )
  const connect = useFormAction(
    'The client was not connected',
    async () => {
      await call('POST /{domain_id}/channels/connect', {
        params: { domain_id: domain },
        body: { client_ids: [client], channel_ids: [channel], types: [...TYPES[types]] },
      })
      return 'Connected'
    },
    onClose,
  )
  return (
    <FormDialog
      title="Connect a client"
      submit="Connect"
      action={connect}
      onClose={onClose}
      disabledReason={client === '' ? 'Choose a client' : undefined}
    >
      <TextField label="Find by name" value={name} onChange={setName} />
      <SelectField
        label="Client"
        field="client_ids"
        value={client}
        onChange={setClient}
        options={[
          ['', 'Choose'],
          ...(clients.data?.clients ?? []).map(({ id, name: its }): [string, string] => [id, its === '' ? id : its]),
        ]}
        {...((clients.data?.total ?? 0) > 100 ? { hint: 'More than 100 match: type a part of the name.' } : {})}
      />
      <Segments
        label="Direction"
        value={types}
        onChange={setTypes}
        options={[
          ['both', 'Both'],
          ['publish', 'Publish'],
          ['subscribe', 'Subscribe'],
        ]}
      />
    </FormDialog>
  )
}
