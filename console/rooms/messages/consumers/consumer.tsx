/** One named consumer: where it stands, what it gives out, and its dead letters. */
import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call } from '../../../api/call.ts'
import type { Answer } from '../../../api/call.ts'
import type { Consumer } from '../../../api/operations.ts'
import { query } from '../../../api/queries.ts'
import { Button, Code, CopyButton, Id, Menu } from '../../../design/controls.tsx'
import { Card, Facts, Notice, Time, counted, formatCount, formatDuration } from '../../../design/display.tsx'
import { FormDialog } from '../../../design/layers.tsx'
import { paths } from '../../../paths.ts'
import { useFormAction } from '../../../shell/action.ts'
import { Confirm } from '../../../shell/confirm.tsx'
import { DeadLetters, WaitingSince } from '../../../shell/dead-letters.tsx'
import { ChannelName, ClientName, UserName } from '../../../shell/names.tsx'
import { useDomainDenied } from '../../../shell/permissions.ts'
import { QueryView } from '../../../shell/states.tsx'
import { Tabs } from '../../../shell/tabs.tsx'
import { useDomainId, useParam } from '../../../shell/url.ts'
import { Standing } from './consumers.tsx'
import { ConsumerFields, FromFields } from './fields.tsx'
import { FROM_LATEST, ORDERS, bodyOf, formOf, fromOf } from './form.ts'

const REFRESH_MS = 5_000
const DEAD_LETTERS = 'GET /{domain_id}/consumers/{consumer}/dead-letters'

type Letter = Answer<typeof DEAD_LETTERS>['dead_letters'][number]

export function ConsumerScreen() {
  const domain = useDomainId()
  const id = useParam('id')
  const tab = useParam('tab')
  const params = { domain_id: domain, consumer: id }
  const result = useQuery({
    ...query('GET /{domain_id}/consumers/{consumer}', { params }),
    refetchInterval: REFRESH_MS,
  })
  useEffect(() => {
    document.title = `${result.data?.name ?? 'Consumer'} · Skein`
  }, [result.data?.name])
  return (
    <QueryView result={result} entity={`domain:${domain}`}>
      {(consumer) => {
        const { dead_letters: dead } = consumer
        return (
          <>
            <Head consumer={consumer} domain={domain} />
            <Tabs
              label="Consumer"
              tabs={[
                { key: '', name: 'Delivery', to: paths.consumer(domain, id) },
                {
                  key: 'dead-letters',
                  name: dead === 0 ? 'Dead letters' : `Dead letters (${formatCount(dead)})`,
                  to: paths.consumer(domain, id, 'dead-letters'),
                },
                { key: 'receive', name: 'Receive', to: paths.consumer(domain, id, 'receive') },
              ]}
            />
            {tab === '' ? <Delivery consumer={consumer} domain={domain} /> : null}
            {tab === 'dead-letters' ? <ConsumerLetters consumer={consumer.id} domain={domain} /> : null}
            {tab === 'receive' ? <Receive name={consumer.name} domain={domain} /> : null}
          </>
        )
      }}
    </QueryView>
  )
}

function Head({ consumer, domain }: { consumer: Consumer; domain: string }) {
  const [dialog, setDialog] = useState<'edit' | 'seek' | 'delete'>()
  const denied = useDomainDenied(domain)
  const [cannotUpdate, cannotDelete] = [denied('consumer_update'), denied('consumer_delete')]
  const close = () => setDialog(undefined)
  return (
    <div className="page-head">
      <h1 className="clip">{consumer.name}</h1>
      <Standing consumer={consumer} />
      <span className="grow" />
      <Button icon="right" disabledReason={cannotUpdate} onClick={() => setDialog('seek')}>
        Move
      </Button>
      <Button icon="settings" disabledReason={cannotUpdate} onClick={() => setDialog('edit')}>
        Edit
      </Button>
      <Menu
        label="More actions"
        icon="more"
        items={[
          {
            label: 'Delete',
            icon: 'trash',
            isDanger: true,
            disabledReason: cannotDelete,
            onSelect: () => setDialog('delete'),
          },
        ]}
      />
      {dialog === 'edit' ? <Edit consumer={consumer} domain={domain} onClose={close} /> : null}
      {dialog === 'seek' ? <Seek consumer={consumer} domain={domain} onClose={close} /> : null}
      {dialog === 'delete' ? <Delete consumer={consumer} domain={domain} onClose={close} /> : null}
    </div>
  )
}

type DialogProps = { consumer: Consumer; domain: string; onClose: () => void }

function Edit({ consumer, domain, onClose }: DialogProps) {
  const [form, setForm] = useState(() => formOf(consumer))
  const save = useFormAction(
    'The consumer was not changed',
    async () => {
      const { channels, ...body } = bodyOf(form)
      // Other channels require `subscribe` on each of them, which a change of the rest does not.
      const isMoved = channels.join() !== consumer.channels.join()
      await call('PATCH /{domain_id}/consumers/{consumer}', {
        params: { domain_id: domain, consumer: consumer.id },
        body: { ...body, ...(isMoved ? { channels } : {}) },
      })
      return 'Saved'
    },
    onClose,
  )
  return (
    <FormDialog title="Edit consumer" submit="Save" action={save} onClose={onClose}>
      <ConsumerFields domain={domain} form={form} onChange={setForm} />
    </FormDialog>
  )
}

function Seek({ consumer, domain, onClose }: DialogProps) {
  const [from, setFrom] = useState(FROM_LATEST)
  const seek = useFormAction(
    'The consumer was not moved',
    async () => {
      const params = { domain_id: domain, consumer: consumer.id }
      await call('POST /{domain_id}/consumers/{consumer}/seek', { params, body: { from: fromOf(from) } })
      return 'Moved'
    },
    onClose,
  )
  return (
    <FormDialog title={`Move ${consumer.name}`} submit="Move" action={seek} onClose={onClose}>
      <p>
        It continues at the new position. {counted(consumer.in_flight + consumer.held, 'message')} in flight or held
        back
        {consumer.in_flight + consumer.held === 1 ? ' is' : ' are'} forgotten; those after the new position are
        delivered again. Dead letters are kept.
      </p>
      <FromFields from={from} onChange={setFrom} />
    </FormDialog>
  )
}

function Delete({ consumer, domain, onClose }: DialogProps) {
  const navigate = useNavigate()
  const remove = useFormAction('The consumer was not deleted', async () => {
    await call('DELETE /{domain_id}/consumers/{consumer}', { params: { domain_id: domain, consumer: consumer.id } })
    await navigate({ to: paths.consumers(domain) })
    return 'The consumer is deleted'
  })
  return (
    <Confirm
      title={`Delete ${consumer.name}`}
      submit="Delete consumer"
      typed={consumer.name}
      action={remove}
      onClose={onClose}
    >
      Its position and its dead letters are deleted, and its callers are refused. The messages stay in their channels.
      This cannot be undone.
    </Confirm>
  )
}

const SECOND_MS = 1_000

function Delivery({ consumer, domain }: { consumer: Consumer; domain: string }) {
  const { filter, behind_since: behind, last_error: error, expired } = consumer
  const order = ORDERS.find(([name]) => name === consumer.order)?.[1] ?? consumer.order
  const publishers = filter.publisher?.split(',') ?? []
  return (
    <>
      {error === undefined ? null : (
        <Notice tone="bad">
          Its callers get nothing: {error.reason} (<Time at={error.at} />
          ). It continues at its position when they may take messages again.
        </Notice>
      )}
      <Card title="Messages">
        <Facts
          rows={[
            [
              'Waiting',
              behind === undefined ? (
                'none'
              ) : (
                <span key="waiting">
                  <WaitingSince at={behind} />, the oldest for {formatDuration(consumer.lag_seconds * SECOND_MS)}
                </span>
              ),
            ],
            ['In flight', `${formatCount(consumer.in_flight)} of at most ${formatCount(consumer.max_in_flight)}`],
            ['Held back', `${counted(consumer.held, 'message')} by earlier ones`],
            ['Dead letters', formatCount(consumer.dead_letters)],
            expired === 0
              ? undefined
              : [
                  'Expired',
                  `${counted(expired, 'message')} waited for a week, or ${expired === 1 ? 'was' : 'were'} deleted`,
                ],
            [
              'Position',
              <span key="position" className="row">
                <code>{consumer.position}</code>
                <CopyButton text={consumer.position} label="Copy position" />
              </span>,
            ],
          ]}
        />
      </Card>
      <Card title="What it takes">
        <Facts
          rows={[
            [
              'Channels',
              consumer.channels.length === 0 ? (
                <span key="channels" className="muted">
                  all of them were deleted
                </span>
              ) : (
                <span key="channels" className="chips">
                  {consumer.channels.map((channel) => (
                    <ChannelName key={channel} domain={domain} id={channel} />
                  ))}
                </span>
              ),
            ],
            ['Subtopic', filter.subtopic === undefined ? 'all' : <code key="subtopic">{filter.subtopic}</code>],
            [
              'Publishers',
              publishers.length === 0 ? (
                'all'
              ) : (
                <span key="publishers" className="chips">
                  {publishers.map((one) => (
                    <ClientName key={one} domain={domain} id={one} />
                  ))}
                </span>
              ),
            ],
            ['Protocol', filter.protocol ?? 'any'],
            ['A message in flight holds back', order],
            ['Delivered again after', consumer.ack_wait],
            ['Deliveries at most', formatCount(consumer.max_deliver)],
            ['Id', <Id key="id" id={consumer.id} />],
            [
              'Created',
              <span key="created">
                <Time at={consumer.created_at} /> by <UserName id={consumer.created_by} />
              </span>,
            ],
          ]}
        />
      </Card>
    </>
  )
}

function ConsumerLetters({ consumer, domain }: { consumer: string; domain: string }) {
  const params = { domain_id: domain, consumer }
  const cannotChange = useDomainDenied(domain)('consumer_update')
  const channelOf = ({ message }: Letter) =>
    message === undefined ? (
      <span className="muted">not shown</span>
    ) : (
      <ChannelName domain={domain} id={message.channel} />
    )
  return (
    <DeadLetters<Letter>
      queryKey={[DEAD_LETTERS, params]}
      fetchPage={async ({ signal, ...page }) => {
        const { total, dead_letters: rows } = await call(DEAD_LETTERS, { params, query: page, signal })
        return { total, rows }
      }}
      cannotRetry={cannotChange}
      cannotDiscard={cannotChange}
      columns={[
        { key: 'at', title: 'Given up', width: '90px', cell: ({ at }) => <Time at={at} /> },
        { key: 'channel', title: 'Channel', width: 'minmax(90px, 1fr)', isMinor: true, cell: channelOf },
        { key: 'attempts', title: 'Deliveries', width: '80px', isMinor: true, cell: ({ attempts }) => attempts },
        {
          key: 'error',
          title: 'Reason',
          width: 'minmax(60px, 2fr)',
          cell: ({ error }) => <span title={error}>{error}</span>,
        },
      ]}
      contentOf={({ message }) => message}
      factsOf={(letter) => [
        ['Channel', channelOf(letter)],
        ['Position', <code key="position">{letter.position}</code>],
        ['Reason', letter.error],
        ['Deliveries', formatCount(letter.attempts)],
        ['Arrived', <Time key="arrived" at={letter.created_at} />],
        ['Given up', <Time key="at" at={letter.at} />],
      ]}
      retry={(body) => call('POST /{domain_id}/consumers/{consumer}/dead-letters/retry', { params, body })}
      discard={(body) => call('POST /{domain_id}/consumers/{consumer}/dead-letters/discard', { params, body })}
    >
      A message that was delivered the maximum number of times and not acknowledged. Retry it when the receiver is
      fixed.
    </DeadLetters>
  )
}

/** Commands: messages that the console took would be missing for the programs. */
function Receive({ name, domain }: { name: string; domain: string }) {
  return (
    <Card title="Take messages">
      <p className="muted">
        A message is delivered again until it is acknowledged. A caller that takes one takes it from all others, so the
        console takes none.
      </p>
      <Code
        label="commands"
        wrap
        text={[
          `skein consumers pull ${name} ${domain} --limit 10 --timeout 30s`,
          `skein consumers ack ${name} <position>,<position> ${domain}`,
          `skein consumers nack ${name} <position> ${domain} --delay 5s`,
        ].join('\n')}
      />
      <Code
        label="requests"
        wrap
        text={[
          `GET /${domain}/consumers/${name}/messages?limit=100&wait=30s`,
          `GET /${domain}/consumers/${name}/stream`,
          `POST /${domain}/consumers/${name}/ack {"positions":["<position>"]}`,
        ].join('\n')}
      />
    </Card>
  )
}
