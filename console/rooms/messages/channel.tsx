/** One channel: its data as charts, its messages as they arrive, its clients. */
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import type { Channel as ChannelRecord } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import {
  Button,
  Check,
  CopyButton,
  Id,
  Menu,
  Segments,
  SelectField,
  TextArea,
  TextField,
} from '../../design/controls.tsx'
import {
  Card,
  Empty,
  EntityStatus,
  Facts,
  Notice,
  State,
  Tags,
  Time,
  absoluteTime,
  counted,
  formatCount,
} from '../../design/display.tsx'
import { ANY_FIELD } from '../../design/form.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { paths } from '../../paths.ts'
import { useAction, useFormAction } from '../../shell/action.ts'
import { Confirm } from '../../shell/confirm.tsx'
import { EntityJournal } from '../../shell/entity-journal.tsx'
import { splitTags } from '../../shell/filters.tsx'
import { ClientName } from '../../shell/names.tsx'
import { RetentionField, retentionOf } from '../../shell/retention.tsx'
import { useChannelDenied } from '../../shell/permissions.ts'
import { ErrorState, QueryView, isRefusal } from '../../shell/states.tsx'
import { Tabs } from '../../shell/tabs.tsx'
import { useDomainId, useParam } from '../../shell/url.ts'
import { ChannelData } from './charts/data.tsx'
import { ConsumersOfChannel } from './consumers/consumers.tsx'
import { describePayload, useLive } from './live.ts'
import type { Live } from './live.ts'
import { StoredMessages } from './stored.tsx'

export function Channel() {
  const domain = useDomainId()
  const id = useParam('id')
  const tab = useParam('tab')
  const [isSending, setSending] = useState(false)
  const result = useQuery(
    query('GET /{domain_id}/channels/{channel_id}', { params: { domain_id: domain, channel_id: id } }),
  )
  useEffect(() => {
    document.title = `${result.data?.name ?? 'Channel'} · Skein`
  }, [result.data?.name])
  const isRefused = result.error !== null && isRefusal(result.error)
  const denied = useChannelDenied(domain, id)
  const cannotSend =
    denied('publish') ??
    (result.data === undefined || result.data.status === 'enabled' ? undefined : 'The channel is disabled')
  const sending = { cannotSend, onSend: () => setSending(true) }
  return (
    <>
      <QueryView result={result} entity={`channel:${id}`} rows={2}>
        {(channel) => (
          <>
            <Head channel={channel} domain={domain} {...sending} />
            <Tabs
              label="Channel"
              tabs={[
                { key: 'data', name: 'Data', to: paths.channel(domain, id) },
                { key: 'live', name: 'Live', to: paths.channel(domain, id, 'live') },
                { key: 'messages', name: 'Messages', to: paths.messages(domain, id) },
                { key: 'clients', name: 'Clients', to: paths.channel(domain, id, 'clients') },
                { key: 'consumers', name: 'Consumers', to: paths.channel(domain, id, 'consumers') },
                { key: 'about', name: 'About', to: paths.channel(domain, id, 'about') },
                { key: 'journal', name: 'Journal', to: paths.channel(domain, id, 'journal') },
              ]}
            />
            {tab === 'messages' ? <StoredMessages key={id} domain={domain} channel={id} /> : null}
            {tab === 'clients' ? <Clients domain={domain} channel={id} /> : null}
            {tab === 'consumers' ? <ConsumersOfChannel key={id} domain={domain} channel={id} /> : null}
            {tab === 'about' ? <About channel={channel} /> : null}
            {tab === 'journal' ? <EntityJournal domain={domain} type="channel" id={id} /> : null}
            {isSending ? <Send domain={domain} channel={channel} onClose={() => setSending(false)} /> : null}
          </>
        )}
      </QueryView>
      {/* Its data is asked for together with the channel. */}
      {!isRefused && (tab === '' || tab === 'live') ? (
        <Messages key={id} domain={domain} channel={id} tab={tab} {...sending} />
      ) : null}
    </>
  )
}

/** `cannotSend`: why the user cannot send to the channel. */
type Sending = { cannotSend: string | undefined; onSend: () => void }

/** Both tabs share one stream. */
function Messages({
  domain,
  channel,
  tab,
  ...sending
}: Sending & {
  domain: string
  channel: string
  tab: string
}) {
  const live = useLive(domain, channel)
  if (live.state === 'ended' && live.error !== undefined)
    return <ErrorState error={live.error} entity={`channel:${channel}`} />
  return tab === 'live' ? (
    <LiveTable domain={domain} live={live} {...sending} />
  ) : (
    <ChannelData domain={domain} channel={channel} received={live.received} {...sending} />
  )
}

function Head({ channel, domain, cannotSend, onSend }: Sending & { channel: ChannelRecord; domain: string }) {
  const navigate = useNavigate()
  const denied = useChannelDenied(domain, channel.id)
  const [dialog, setDialog] = useState<'edit' | 'delete'>()
  const params = { domain_id: domain, channel_id: channel.id }
  const isEnabled = channel.status === 'enabled'
  const [toggle] = useAction('The status was not changed', async () => {
    if (isEnabled) await call('POST /{domain_id}/channels/{channel_id}/disable', { params })
    else await call('POST /{domain_id}/channels/{channel_id}/enable', { params })
    return isEnabled ? 'Disabled: it takes no more messages' : 'Enabled'
  })
  const remove = useFormAction('The channel was not deleted', async () => {
    await call('DELETE /{domain_id}/channels/{channel_id}', { params })
    await navigate({ to: paths.channels(domain) })
    return 'The channel is deleted'
  })
  return (
    <div className="page-head">
      <h1 className="clip" dir="auto">
        {channel.name === '' ? channel.id : channel.name}
      </h1>
      <EntityStatus status={channel.status} />
      <span className="grow" />
      <Button icon="send" kind="primary" onClick={onSend} disabledReason={cannotSend}>
        Send
      </Button>
      <Button icon="settings" disabledReason={denied('update')} onClick={() => setDialog('edit')}>
        Edit
      </Button>
      <Menu
        label="More actions"
        icon="more"
        items={[
          {
            label: isEnabled ? 'Disable' : 'Enable',
            icon: isEnabled ? 'stop' : 'play',
            disabledReason: denied('update'),
            onSelect: () => void toggle(),
          },
          {
            label: 'Explain access',
            icon: 'access',
            onSelect: () =>
              void navigate({ to: paths.access(domain, { entity: `channel:${channel.id}`, action: 'publish' }) }),
          },
          'line',
          {
            label: 'Delete',
            icon: 'trash',
            isDanger: true,
            disabledReason: denied('delete'),
            onSelect: () => setDialog('delete'),
          },
        ]}
      />
      {dialog === 'edit' ? <Edit channel={channel} domain={domain} onClose={() => setDialog(undefined)} /> : null}
      {dialog === 'delete' ? (
        <Confirm
          title={`Delete ${channel.name}`}
          submit="Delete channel"
          typed={channel.name}
          action={remove}
          onClose={() => setDialog(undefined)}
        >
          Its connections end at once. Its stored messages stay until their retention removes them. This cannot be
          undone.
        </Confirm>
      ) : null}
    </div>
  )
}

function Edit({ channel, domain, onClose }: { channel: ChannelRecord; domain: string; onClose: () => void }) {
  const [name, setName] = useState(channel.name)
  const [description, setDescription] = useState(channel.description ?? '')
  const [tags, setTags] = useState(channel.tags.join(', '))
  const [days, setDays] = useState(channel.retention_days === undefined ? '' : String(channel.retention_days))
  const [isRemoving, setRemoving] = useState(false)
  const params = { domain_id: domain, channel_id: channel.id }
  const old = useOldRecords(params, Number(days))
  const save = useFormAction(
    'The channel was not changed',
    async () => {
      await call('PATCH /{domain_id}/channels/{channel_id}', {
        params,
        body: { name: name.trim(), description, tags: splitTags(tags), retention_days: retentionOf(days) },
      })
      if (isRemoving && old !== undefined)
        await call('DELETE /{domain_id}/channels/{channel_id}/messages', { params, query: { to: old.before } })
      return 'Saved'
    },
    onClose,
  )
  return (
    <FormDialog title="Edit channel" submit="Save" action={save} onClose={onClose}>
      <TextField label="Name" field="name" value={name} onChange={setName} />
      <TextField label="Description" field="description" value={description} onChange={setDescription} />
      <TextField label="Tags" field="tags" value={tags} onChange={setTags} hint="Separated by commas" />
      <RetentionField
        value={days}
        onChange={(value) => (setDays(value), setRemoving(false))}
        none="Kept as the domain says"
      />
      {old === undefined || old.records === 0 ? null : (
        <Notice tone="warn">
          {old.isExact ? '' : 'At least '}
          {counted(old.records, 'record')} of the channel {old.records === 1 ? 'is' : 'are'} older than{' '}
          {absoluteTime(old.before * 1_000)}.
          <Check checked={isRemoving} onChange={setRemoving}>
            Delete {old.records === 1 ? 'it' : 'them'} now, for ever
          </Check>
        </Notice>
      )}
    </FormDialog>
  )
}

const DAY_SECONDS = 86_400

/** What is stored from before a period; undefined without a period, and while it is counted. */
function useOldRecords(
  params: { domain_id: string; channel_id: string },
  days: number,
): { records: number; isExact: boolean; before: number } | undefined {
  const [now] = useState(() => Math.floor(Date.now() / 1_000))
  const before = now - days * DAY_SECONDS
  const { data, isPlaceholderData } = useQuery({
    ...query('GET /{domain_id}/channels/{channel_id}/messages', { params, query: { to: before, only_total: true } }),
    enabled: days > 0,
  })
  if (days === 0 || data === undefined || isPlaceholderData) return undefined
  return { records: data.total, isExact: data.total_exact !== false, before }
}

const STREAM_WORDS = {
  connecting: ['active', 'Connecting'],
  open: ['ok', 'Live'],
  waiting: ['warn', 'Interrupted; connecting again'],
  ended: ['bad', 'Ended'],
} as const

function LiveTable({ domain, live, cannotSend, onSend }: Sending & { domain: string; live: Live }) {
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

function Send({ domain, channel, onClose }: { domain: string; channel: ChannelRecord; onClose: () => void }) {
  const [subtopic, setSubtopic] = useState('')
  const [type, setType] = useState<'application/senml+json' | 'application/json' | 'text/plain'>(
    'application/senml+json',
  )
  const [stored, setStored] = useState(0)
  const [payload, setPayload] = useState('[{"n":"temperature","u":"Cel","v":21.5}]')
  const send = useFormAction('The message was not stored', async () => {
    const params = { domain_id: domain, channel_id: channel.id }
    const headers = { 'Content-Type': type }
    const rest = subtopic.trim().replaceAll('.', '/')
    if (rest === '') await call('POST /m/{domain_id}/c/{channel_id}', { params, headers, body: payload })
    else
      await call('POST /m/{domain_id}/c/{channel_id}/{rest}', {
        params: { ...params, rest },
        headers,
        body: payload,
      })
    setStored((before) => before + 1)
  })
  return (
    <FormDialog title={`Send to ${channel.name}`} submit="Send" action={send} onClose={onClose}>
      <p className="muted">You publish as yourself. Devices publish with the secret of a client.</p>
      <Segments
        label="Format"
        value={type}
        onChange={setType}
        options={[
          ['application/senml+json', 'SenML'],
          ['application/json', 'JSON'],
          ['text/plain', 'Text'],
        ]}
      />
      <TextArea label="Message" field={ANY_FIELD} value={payload} onChange={setPayload} />
      <TextField
        label="Subtopic"
        field="subtopic"
        value={subtopic}
        onChange={setSubtopic}
        hint="Such as floor1/room2. Optional."
      />
      {stored === 0 ? null : (
        <div role="status">
          <Notice tone="ok">{counted(stored, 'message')} stored.</Notice>
        </div>
      )}
    </FormDialog>
  )
}

function Clients({ domain, channel }: { domain: string; channel: string }) {
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

function About({ channel }: { channel: ChannelRecord }) {
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
