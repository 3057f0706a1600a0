/** One channel: its data as charts, its messages as they arrive, its clients. */
import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { Suspense, useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import type { Channel as ChannelRecord } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import { Button, Menu } from '../../design/controls.tsx'
import { EntityStatus, Skeleton } from '../../design/display.tsx'
import { paths } from '../../paths.ts'
import { useAction, useFormAction } from '../../shell/action.ts'
import { Confirm } from '../../shell/confirm.tsx'
import { later } from '../../shell/later.tsx'
import { useChannelDenied } from '../../shell/permissions.ts'
import { ErrorState, QueryView, isRefusal } from '../../shell/states.tsx'
import { Tabs } from '../../shell/tabs.tsx'
import { useDomainId, useParam } from '../../shell/url.ts'
import { ChannelData } from './charts/data.tsx'
import { useLive } from './live.ts'
import type { Sending } from './live.ts'

// The charts are what a channel is opened for: everything else comes when it is asked for.
const StoredMessages = later(async () => (await import('./stored.tsx')).StoredMessages)
const ConsumersOfChannel = later(async () => (await import('./consumers/consumers.tsx')).ConsumersOfChannel)
const EntityJournal = later(async () => (await import('../../shell/entity-journal.tsx')).EntityJournal)
const LiveTable = later(async () => (await import('./channel-tabs.tsx')).LiveTable)
const ClientsOfChannel = later(async () => (await import('./channel-tabs.tsx')).ClientsOfChannel)
const AboutChannel = later(async () => (await import('./channel-tabs.tsx')).AboutChannel)
const EditChannel = later(async () => (await import('./channel-forms.tsx')).EditChannel)
const SendToChannel = later(async () => (await import('./channel-forms.tsx')).SendToChannel)

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
            <Suspense fallback={<Skeleton />}>
              {tab === 'messages' ? <StoredMessages key={id} domain={domain} channel={id} /> : null}
              {tab === 'clients' ? <ClientsOfChannel domain={domain} channel={id} /> : null}
              {tab === 'consumers' ? <ConsumersOfChannel key={id} domain={domain} channel={id} /> : null}
              {tab === 'about' ? <AboutChannel channel={channel} /> : null}
              {tab === 'journal' ? <EntityJournal domain={domain} type="channel" id={id} /> : null}
            </Suspense>
            <Suspense fallback={null}>
              {isSending ? <SendToChannel domain={domain} channel={channel} onClose={() => setSending(false)} /> : null}
            </Suspense>
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
    <Suspense fallback={<Skeleton />}>
      <LiveTable domain={domain} live={live} {...sending} />
    </Suspense>
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
      <Suspense fallback={null}>
        {dialog === 'edit' ? (
          <EditChannel channel={channel} domain={domain} onClose={() => setDialog(undefined)} />
        ) : null}
      </Suspense>
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
