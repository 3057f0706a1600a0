/** A device from nothing: one form makes the client, the channel and the connection; then commands, until the first message is there. */
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useEffect, useRef, useState } from 'react'
import { call } from '../../api/call.ts'
import { query } from '../../api/queries.ts'
import { Button, SelectField, TextField } from '../../design/controls.tsx'
import { Card, Notice, State } from '../../design/display.tsx'
import { paths } from '../../paths.ts'
import { PageForm } from '../../shell/page-form.tsx'
import { useFormAction } from '../../shell/action.ts'
import { ChannelName, ClientName } from '../../shell/names.tsx'
import { useDomainDenied } from '../../shell/permissions.ts'
import { useDomainId, useViews } from '../../shell/url.ts'
import { Programs } from './programs.tsx'

/** The interval of requests until the first message is there. */
const ASK_MS = 1_000
const NEW = ''

export function FirstDevice() {
  const domain = useDomainId()
  const [{ client, channel }, setViews] = useViews()
  useEffect(() => {
    document.title = 'Connect a device · Skein'
  }, [])
  return (
    <>
      <div className="page-head">
        <h1 className="grow">Connect a device</h1>
      </div>
      {client === undefined || channel === undefined ? (
        <NewDevice domain={domain} onMade={(made) => setViews(made)} />
      ) : (
        <Connected domain={domain} client={client} channel={channel} />
      )}
    </>
  )
}

function NewDevice({
  domain,
  onMade,
}: {
  domain: string
  onMade: (made: { client: string; channel: string }) => void
}) {
  const params = { domain_id: domain }
  const denied = useDomainDenied(domain)
  const [name, setName] = useState('my-device')
  const [chosen, setChosen] = useState(NEW)
  const [channelName, setChannelName] = useState('measurements')
  const channels = useQuery(
    query('GET /{domain_id}/channels', { params, query: { limit: 100, order: 'name', dir: 'asc', status: 'enabled' } }),
  )
  // What a first attempt made is used by the next one.
  const made = useRef<{ channel?: string; client?: string }>({})
  const create = useFormAction('The device was not created', async () => {
    const channel =
      chosen === NEW
        ? (made.current.channel ??= (
            await call('POST /{domain_id}/channels', { params, body: { name: channelName.trim() } })
          ).id)
        : chosen
    const client = (made.current.client ??= (
      await call('POST /{domain_id}/clients', { params, body: { name: name.trim() } })
    ).id)
    await call('POST /{domain_id}/channels/connect', {
      params,
      body: { client_ids: [client], channel_ids: [channel], types: ['publish', 'subscribe'] },
    })
    onMade({ client, channel })
  })
  const known = channels.data?.channels ?? []
  const reason = denied('client_create') ?? (chosen === NEW ? denied('channel_create') : undefined)
  return (
    <Card title="New device">
      <PageForm action={create} className="form" disabledReason={reason}>
        {reason === undefined ? null : <Notice tone="warn">{reason}.</Notice>}
        <p className="muted">
          The device gets a secret of its own and publishes to a channel, which stores its messages and draws them.
        </p>
        <TextField label="Name of the device" field="name" value={name} onChange={setName} required maxLength={1024} />
        {known.length === 0 ? null : (
          <SelectField
            label="Channel"
            value={chosen}
            onChange={setChosen}
            options={[
              [NEW, 'A new channel'],
              ...known.map(({ id, name: its }): [string, string] => [id, its === '' ? id : its]),
            ]}
          />
        )}
        {chosen === NEW ? (
          <TextField
            label="Name of the channel"
            value={channelName}
            onChange={setChannelName}
            required
            maxLength={1024}
          />
        ) : null}
        <div className="row">
          <Button type="submit" kind="primary" busy={create.isBusy} disabledReason={reason}>
            Create device
          </Button>
        </div>
      </PageForm>
    </Card>
  )
}

function Connected({ domain, client, channel }: { domain: string; client: string; channel: string }) {
  const first = useQuery({
    ...query('GET /{domain_id}/channels/{channel_id}/messages', {
      params: { domain_id: domain, channel_id: channel },
      query: { publisher: client, limit: 1 },
    }),
    refetchInterval: ({ state }) => ((state.data?.total ?? 0) > 0 ? false : ASK_MS),
  })
  const isThere = (first.data?.total ?? 0) > 0
  return (
    <>
      <div aria-live="polite">
        {isThere ? (
          <Notice
            tone="ok"
            actions={
              <Link className="button primary" to={paths.channel(domain, channel)}>
                Show the chart
              </Link>
            }
          >
            The first message has arrived.
          </Notice>
        ) : first.error !== null ? (
          <Notice tone="bad">The messages cannot be read: {first.error.message}.</Notice>
        ) : (
          <Notice tone="plain">
            <State tone="active" icon="wait">
              Waiting for the first message…
            </State>
          </Notice>
        )}
      </div>
      <Card title="Send the first message">
        <div className="stack mid">
          <p>
            <ClientName domain={domain} id={client} /> is created and connected to{' '}
            <ChannelName domain={domain} id={channel} />. Run one of these programs:
          </p>
          <Programs domain={domain} client={client} channel={channel} />
        </div>
      </Card>
    </>
  )
}
