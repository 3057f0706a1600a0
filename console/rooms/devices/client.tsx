/** One client: presence, secret, connections, sessions, and snippets that work. */
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import { formatJson, parseJson } from '../../api/json.ts'
import type { Client as ClientRecord } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import {
  Button,
  Code,
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
  counted,
  formatCount,
  isNever,
} from '../../design/display.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { paths } from '../../paths.ts'
import { useAction, useFormAction } from '../../shell/action.ts'
import { Confirm } from '../../shell/confirm.tsx'
import { EntityJournal } from '../../shell/entity-journal.tsx'
import { splitTags } from '../../shell/tags.ts'
import { GroupName } from '../../shell/names.tsx'
import { useOpenAlarms } from '../../shell/open-alarms.tsx'
import { QueryView } from '../../shell/states.tsx'
import { Tabs } from '../../shell/tabs.tsx'
import { useDomainId, useParam, useView } from '../../shell/url.ts'
import { WaitingForOtherOwner } from '../../shell/waiting.tsx'
import { useClientDenied } from '../../shell/permissions.ts'
import { ClientCertificates, NewestValues } from './client-data.tsx'
import { CommandHistory } from './commands/history.tsx'
import { Documents } from './desired/documents.tsx'
import { Programs } from './programs.tsx'
import { fetchSecret } from './secret.ts'
import { ChannelField } from './choice.tsx'
import { DIRECTION_WORDS, TYPES } from './direction.ts'
import type { Direction } from './direction.ts'

const REFRESH_MS = 5_000

export function Client() {
  const domain = useDomainId()
  const id = useParam('id')
  const tab = useParam('tab')
  const result = useQuery(
    query('GET /{domain_id}/clients/{client_id}', { params: { domain_id: domain, client_id: id } }),
  )
  useEffect(() => {
    document.title = `${result.data?.name ?? 'Client'} · Skein`
  }, [result.data?.name])
  return (
    <QueryView result={result} entity={`client:${id}`}>
      {(client) => (
        <>
          <Head client={client} domain={domain} />
          <Tabs
            label="Client"
            tabs={[
              { key: 'overview', name: 'Overview', to: paths.client(domain, id) },
              { key: 'state', name: 'State', to: paths.client(domain, id, 'state') },
              { key: 'commands', name: 'Commands', to: paths.client(domain, id, 'commands') },
              { key: 'connections', name: 'Connections', to: paths.client(domain, id, 'connections') },
              { key: 'snippets', name: 'Snippets', to: paths.client(domain, id, 'snippets') },
              { key: 'journal', name: 'Journal', to: paths.client(domain, id, 'journal') },
            ]}
          />
          {tab === '' ? <Details client={client} domain={domain} /> : null}
          {tab === 'state' ? <Documents domain={domain} client={id} /> : null}
          {tab === 'commands' ? <CommandHistory domain={domain} client={id} /> : null}
          {tab === 'connections' ? <Connections client={client} domain={domain} /> : null}
          {tab === 'snippets' ? <Snippets client={client} domain={domain} /> : null}
          {tab === 'journal' ? <EntityJournal domain={domain} type="client" id={id} /> : null}
        </>
      )}
    </QueryView>
  )
}

function AlarmsOfClient({ domain, client }: { domain: string; client: string }) {
  const count = useOpenAlarms(domain, client) ?? 0
  if (count === 0) return null
  return (
    <Link to={paths.alarms(domain, { client })}>
      <State tone="warn">{counted(count, 'open alarm')}</State>
    </Link>
  )
}

function Head({ client, domain }: { client: ClientRecord; domain: string }) {
  const navigate = useNavigate()
  const denied = useClientDenied(domain, client.id)
  const [dialog, setDialog] = useState<'edit' | 'delete'>()
  const params = { domain_id: domain, client_id: client.id }
  const isEnabled = client.status === 'enabled'
  const [toggle] = useAction('The status was not changed', async () => {
    if (isEnabled) await call('POST /{domain_id}/clients/{client_id}/disable', { params })
    else await call('POST /{domain_id}/clients/{client_id}/enable', { params })
    return isEnabled ? 'Disabled: its connections are closed' : 'Enabled'
  })
  const remove = useFormAction('The client was not deleted', async () => {
    await call('DELETE /{domain_id}/clients/{client_id}', { params })
    await navigate({ to: paths.clients(domain) })
    return 'The client is deleted'
  })
  return (
    <div className="page-head">
      <h1 className="clip" dir="auto">
        {client.name === '' ? client.id : client.name}
      </h1>
      <EntityStatus status={client.status} />
      <AlarmsOfClient domain={domain} client={client.id} />
      <span className="grow" />
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
              void navigate({ to: paths.access(domain, { entity: `client:${client.id}`, action: 'read' }) }),
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
      {dialog === 'edit' ? <Edit client={client} domain={domain} onClose={() => setDialog(undefined)} /> : null}
      {dialog === 'delete' ? (
        <Confirm
          title={`Delete ${client.name}`}
          submit="Delete client"
          action={remove}
          onClose={() => setDialog(undefined)}
        >
          Its connections end at once and its secret becomes invalid. Its stored messages stay. This cannot be undone.
        </Confirm>
      ) : null}
    </div>
  )
}

function Edit({ client, domain, onClose }: { client: ClientRecord; domain: string; onClose: () => void }) {
  const [name, setName] = useState(client.name)
  const [tags, setTags] = useState(client.tags.join(', '))
  const [metadata, setMetadata] = useState(formatJson(client.metadata, 2))
  const save = useFormAction(
    'The client was not changed',
    async () => {
      await call('PATCH /{domain_id}/clients/{client_id}', {
        params: { domain_id: domain, client_id: client.id },
        body: { name: name.trim(), tags: splitTags(tags), metadata: parseJson(metadata) as Record<string, unknown> },
      })
      return 'Saved'
    },
    onClose,
  )
  const fault = jsonFault(metadata)
  return (
    <FormDialog title="Edit client" submit="Save" action={save} onClose={onClose} disabledReason={fault}>
      <TextField label="Name" field="name" value={name} onChange={setName} />
      <TextField label="Tags" field="tags" value={tags} onChange={setTags} hint="Separated by commas" />
      <TextArea
        label="Metadata"
        field="metadata"
        hint="A JSON object"
        error={fault}
        value={metadata}
        onChange={setMetadata}
      />
    </FormDialog>
  )
}

function jsonFault(text: string): string | undefined {
  try {
    const value: unknown = parseJson(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? undefined
      : 'The metadata must be a JSON object'
  } catch (error) {
    return `The metadata is not JSON: ${(error as Error).message}`
  }
}

function Details({ client, domain }: { client: ClientRecord; domain: string }) {
  const params = { domain_id: domain, client_id: client.id }
  const telemetry = useQuery({
    ...query('GET /{domain_id}/journal/client/{client_id}/telemetry', { params }),
    refetchInterval: REFRESH_MS,
  })
  const sessions = useQuery({
    ...query('GET /{domain_id}/clients/{client_id}/sessions', { params, query: { limit: 20 } }),
    refetchInterval: REFRESH_MS,
  })
  return (
    <div className="grid">
      <WaitingForOtherOwner domain={domain} client={client.id} />
      <Card title="Presence" className="half">
        <QueryView result={telemetry} entity={`client:${client.id}`}>
          {(facts) => (
            <>
              <Facts
                rows={[
                  [
                    'State',
                    facts.online ? (
                      <State key="state" tone="ok">
                        Online
                      </State>
                    ) : (
                      <State key="state" tone="idle">
                        Offline
                      </State>
                    ),
                  ],
                  // A device without a session of MQTT is seen, and is never online.
                  isNever(facts.online_changed_at)
                    ? undefined
                    : ['Since', <Time key="since" at={facts.online_changed_at} />],
                  ['Last seen', <Time key="seen" at={facts.last_seen} />],
                  ['Published', counted(facts.inbound_messages, 'message')],
                  ['Received', counted(facts.outbound_messages, 'message')],
                ]}
              />
              {isNever(facts.last_error_at) ? null : (
                <Notice tone="warn">
                  {formatCount(facts.unparsed_messages)} messages could not be read. The last error,{' '}
                  <Time at={facts.last_error_at} />: {facts.last_error}
                </Notice>
              )}
            </>
          )}
        </QueryView>
      </Card>
      <NewestValues domain={domain} client={client.id} />
      <Card title="Secret" className="half">
        <Secret client={client} domain={domain} />
      </Card>
      <Card title="About" className="half">
        <Facts
          rows={[
            ['Id', <Id key="id" id={client.id} />],
            ['Tags', <Tags key="tags" tags={client.tags} />],
            ['Created', <Time key="created" at={client.created_at} />],
            ['Changed', <Time key="changed" at={client.updated_at} />],
            client.parent_group_id === undefined
              ? undefined
              : ['Group', <GroupName key="group" domain={domain} id={client.parent_group_id} />],
          ]}
        />
        {Object.keys(client.metadata).length === 0 ? null : (
          <Code label="metadata" wrap text={formatJson(client.metadata, 2)} />
        )}
      </Card>
      <Card title="Sessions" flush className="half">
        <QueryView result={sessions} entity={`client:${client.id}`}>
          {({ sessions: rows }) =>
            rows.length === 0 ? (
              <Empty icon="connection" title="No MQTT session" />
            ) : (
              rows.map((session) => (
                <div key={session.client_identifier} className="list-row">
                  <div className="grow">
                    <code>{session.client_identifier}</code>
                    <div className="muted small">
                      MQTT {session.protocol_version === 5 ? '5.0' : session.protocol_version === 4 ? '3.1.1' : '3.1'}{' '}
                      from {session.address} · {formatCount(session.queued_messages)} queued
                    </div>
                  </div>
                  <State tone={session.connected ? 'ok' : 'idle'}>{session.connected ? 'Connected' : 'Waiting'}</State>
                  <span className="muted small">
                    <Time at={session.connected ? session.connected_at : session.disconnected_at} />
                  </span>
                </div>
              ))
            )
          }
        </QueryView>
      </Card>
      <ClientCertificates domain={domain} client={client.id} />
    </div>
  )
}

function Secret({ client, domain }: { client: ClientRecord; domain: string }) {
  const cannotUpdate = useClientDenied(domain, client.id)('update')
  const [secret, setSecret] = useState<string>()
  const [isAsking, setAsking] = useState(false)
  const params = { domain_id: domain }
  const [show, isShowing] = useAction('The secret is not shown', async () => {
    setSecret(await fetchSecret(domain, client.id))
  })
  const rotate = useFormAction('The secret was not changed', async () => {
    const next = [...crypto.getRandomValues(new Uint8Array(16))]
      .map((byte) => byte.toString(16).padStart(2, '0'))
      .join('')
    await call('PATCH /{domain_id}/clients/{client_id}/secret', {
      params: { ...params, client_id: client.id },
      body: { secret: next },
    })
    setSecret(next)
    setAsking(false)
    return 'The secret is new. The old one is invalid.'
  })
  return (
    <>
      {secret === undefined ? (
        <p className="muted">Anyone with the secret can act as this client.</p>
      ) : (
        <div className="row">
          <code className="grow">{secret}</code>
          <CopyButton text={secret} label="Copy secret" />
        </div>
      )}
      <div className="row wrap">
        {secret === undefined ? (
          <Button icon="eye" busy={isShowing} disabledReason={cannotUpdate} onClick={() => void show()}>
            Show secret
          </Button>
        ) : (
          <Button icon="eye" onClick={() => setSecret(undefined)}>
            Hide
          </Button>
        )}
        <Button icon="refresh" disabledReason={cannotUpdate} onClick={() => setAsking(true)}>
          Rotate
        </Button>
      </div>
      {isAsking ? (
        <Confirm title="Rotate the secret" submit="Rotate" action={rotate} onClose={() => setAsking(false)}>
          The client gets a new secret. Its connections end, and it cannot connect again with the old one.
        </Confirm>
      ) : null}
    </>
  )
}

function Connections({ client, domain }: { client: ClientRecord; domain: string }) {
  const params = { domain_id: domain, client_id: client.id }
  const publishes = useQuery(
    query('GET /{domain_id}/clients/{client_id}/channels', {
      params,
      query: { limit: 100, connection_type: 'publish', status: 'all' },
    }),
  )
  const subscribes = useQuery(
    query('GET /{domain_id}/clients/{client_id}/channels', {
      params,
      query: { limit: 100, connection_type: 'subscribe', status: 'all' },
    }),
  )
  const cannotConnect = useClientDenied(domain, client.id)('connect_to_channel')
  const [isAdding, setAdding] = useState(false)
  const [disconnect] = useAction('The connection was not removed', async (channel: string) => {
    await call('POST /{domain_id}/channels/disconnect', {
      params: { domain_id: domain },
      body: { client_ids: [client.id], channel_ids: [channel], types: ['publish', 'subscribe'] },
    })
    return 'Disconnected'
  })
  return (
    <QueryView result={publishes} entity={`client:${client.id}`}>
      {({ channels: publishing }) => {
        const subscribing = subscribes.data?.channels ?? []
        const all = new Map([...publishing, ...subscribing].map((channel) => [channel.id, channel]))
        return (
          <Card
            title={`Connected to ${all.size} ${all.size === 1 ? 'channel' : 'channels'}`}
            flush
            actions={
              <Button icon="plus" disabledReason={cannotConnect} onClick={() => setAdding(true)}>
                Connect
              </Button>
            }
          >
            {all.size === 0 ? (
              <Empty icon="connection" title="Not connected">
                Connect it to a channel. Until then it can neither publish nor subscribe.
              </Empty>
            ) : (
              [...all.values()].map((channel) => (
                <div key={channel.id} className="list-row">
                  <Link className="grow clip" dir="auto" to={paths.channel(domain, channel.id)}>
                    {channel.name === '' ? channel.id : channel.name}
                  </Link>
                  {publishing.some(({ id }) => id === channel.id) ? <span className="tag">publish</span> : null}
                  {subscribing.some(({ id }) => id === channel.id) ? <span className="tag">subscribe</span> : null}
                  <Button
                    small
                    kind="quiet"
                    icon="close"
                    label={`Disconnect ${channel.name}`}
                    disabledReason={cannotConnect}
                    onClick={() => void disconnect(channel.id)}
                  />
                </div>
              ))
            )}
            {isAdding ? <Connect client={client} domain={domain} onClose={() => setAdding(false)} /> : null}
          </Card>
        )
      }}
    </QueryView>
  )
}

function Connect({ client, domain, onClose }: { client: ClientRecord; domain: string; onClose: () => void }) {
  const [channel, setChannel] = useState('')
  const [types, setTypes] = useState<Direction>('both')
  const connect = useFormAction(
    'The client was not connected',
    async () => {
      await call('POST /{domain_id}/channels/connect', {
        params: { domain_id: domain },
        body: { client_ids: [client.id], channel_ids: [channel], types: [...TYPES[types]] },
      })
      return 'Connected'
    },
    onClose,
  )
  return (
    <FormDialog
      title="Connect to a channel"
      submit="Connect"
      action={connect}
      onClose={onClose}
      disabledReason={channel === '' ? 'Choose a channel' : undefined}
    >
      <ChannelField domain={domain} field="channel_ids" value={channel} onChange={setChannel} />
      <Segments label="Direction" value={types} onChange={setTypes} options={DIRECTION_WORDS} />
    </FormDialog>
  )
}

function Snippets({ client, domain }: { client: ClientRecord; domain: string }) {
  const channels = useQuery(
    query('GET /{domain_id}/clients/{client_id}/channels', {
      params: { domain_id: domain, client_id: client.id },
      query: { limit: 100, connection_type: 'publish' },
    }),
  )
  const [chosen, setChosen] = useView('channel')
  return (
    <QueryView result={channels} entity={`client:${client.id}`}>
      {({ channels: known }) => {
        const [first] = known
        if (first === undefined)
          return (
            <Notice tone="warn" actions={<Link to={paths.client(domain, client.id, 'connections')}>Connect it</Link>}>
              The client publishes to no channel. Connect it to one first.
            </Notice>
          )
        const channel = known.find(({ id }) => id === chosen) ?? first
        return (
          <Card title="Publish as this client">
            <div className="stack mid">
              {known.length === 1 ? null : (
                <SelectField
                  label="Channel"
                  value={channel.id}
                  onChange={setChosen}
                  options={known.map(({ id, name }): [string, string] => [id, name === '' ? id : name])}
                />
              )}
              <Programs domain={domain} client={client.id} channel={channel.id} />
            </div>
          </Card>
        )
      }}
    </QueryView>
  )
}
