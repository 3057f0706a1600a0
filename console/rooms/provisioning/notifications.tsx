/** The user's own subscriptions to notifications, by mail and webhook, and what could not be delivered. */
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import type { Answer } from '../../api/call.ts'
import type { Subscription } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import { Button, Menu, TextField } from '../../design/controls.tsx'
import { Card, Empty, Facts, State, Time, counted, formatCount } from '../../design/display.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { paths } from '../../paths.ts'
import { useAction, useFormAction } from '../../shell/action.ts'
import { Confirm } from '../../shell/confirm.tsx'
import { DeadLetters, WaitingSince } from '../../shell/dead-letters.tsx'
import { LastFailure, signingSecretRow } from '../../shell/deliveries.tsx'
import { QueryView } from '../../shell/states.tsx'
import { DataTable } from '../../shell/table.tsx'
import { useParam } from '../../shell/url.ts'

const REFRESH_MS = 5_000
const DEAD_LETTERS = 'GET /subscriptions/{subscription_id}/dead-letters'

type Letter = Answer<typeof DEAD_LETTERS>['dead_letters'][number]

export function Notifications() {
  const [isCreating, setCreating] = useState(false)
  useEffect(() => {
    document.title = 'Notifications · Skein'
  }, [])
  const create = (
    <Button kind="primary" icon="plus" onClick={() => setCreating(true)}>
      New subscription
    </Button>
  )
  return (
    <>
      <div className="page-head">
        <h1 className="grow">Notifications</h1>
        {create}
      </div>
      <DataTable<Subscription>
        label="Subscriptions"
        queryKey={['GET /subscriptions']}
        refetchMs={REFRESH_MS}
        fetchPage={async ({ signal, ...page }) => {
          const { total, subscriptions: rows } = await call('GET /subscriptions', { query: page, signal })
          return { total, rows }
        }}
        rowId={({ id }) => id}
        hrefOf={({ id }) => paths.notification(id)}
        columns={[
          {
            key: 'contact',
            title: 'Contact',
            width: 'minmax(120px, 2fr)',
            cell: ({ id, contact }) => (
              <Link className="main" dir="auto" tabIndex={-1} to={paths.notification(id)}>
                {contact}
              </Link>
            ),
          },
          { key: 'topic', title: 'Topic', width: 'minmax(120px, 3fr)', isMinor: true, cell: ({ topic }) => topic },
          { key: 'state', title: 'State', width: '140px', cell: (row) => <SubscriptionState subscription={row} /> },
          {
            key: 'waiting',
            title: 'Waiting',
            width: '90px',
            isMinor: true,
            cell: ({ pending, behind_since: behind }) =>
              `${formatCount(pending ?? 0)}${behind === undefined ? '' : ' and more'}`,
          },
        ]}
        empty={
          <Card>
            <Empty icon="send" title="No subscriptions yet" actions={create}>
              A subscription sends the messages of a channel to an email address or a webhook.
            </Empty>
          </Card>
        }
      />
      {isCreating ? <NewSubscription onClose={() => setCreating(false)} /> : null}
    </>
  )
}

function SubscriptionState({ subscription: { status, last_error: error } }: { subscription: Subscription }) {
  if (status === 'pending') return <State tone="warn">Not confirmed</State>
  return error === undefined ? <State tone="ok">Active</State> : <State tone="bad">Failing</State>
}

function NewSubscription({ onClose }: { onClose: () => void }) {
  const [topic, setTopic] = useState('')
  const [contact, setContact] = useState('')
  const create = useFormAction(
    'The subscription was not created',
    async () => {
      await call('POST /subscriptions', { body: { topic: topic.trim(), contact: contact.trim() } })
      return 'Created'
    },
    onClose,
  )
  return (
    <FormDialog title="New subscription" submit="Create subscription" action={create} onClose={onClose}>
      <TextField
        label="Topic"
        field="topic"
        value={topic}
        onChange={setTopic}
        placeholder="m/<domain>/c/<channel>/alarms/#"
        hint="Without a subtopic, only messages without one"
        required
        autoFocus
      />
      <TextField
        label="Contact"
        field="contact"
        value={contact}
        onChange={setContact}
        placeholder="ann@example.com"
        hint="An email address, or the https address of a webhook"
        required
      />
    </FormDialog>
  )
}

export function Notification() {
  const id = useParam('id')
  const params = { subscription_id: id }
  const result = useQuery({
    ...query('GET /subscriptions/{subscription_id}', { params }),
    refetchInterval: REFRESH_MS,
  })
  useEffect(() => {
    document.title = `${result.data?.contact ?? 'Notifications'} · Skein`
  }, [result.data?.contact])
  return (
    <QueryView result={result}>
      {(subscription) => (
        <>
          <Head subscription={subscription} />
          <About subscription={subscription} />
          <h2>Dead letters</h2>
          <DeadLetters<Letter>
            queryKey={[DEAD_LETTERS, params]}
            fetchPage={async ({ signal, ...page }) => {
              const { total, dead_letters: rows } = await call(DEAD_LETTERS, { params, query: page, signal })
              return { total, rows }
            }}
            columns={[
              { key: 'at', title: 'Given up', width: '90px', cell: ({ at }) => <Time at={at} /> },
              { key: 'subtopic', title: 'Subtopic', width: 'minmax(80px, 1fr)', isMinor: true, cell: subtopicOf },
              { key: 'attempts', title: 'Attempts', width: '80px', isMinor: true, cell: ({ attempts }) => attempts },
              {
                key: 'error',
                title: 'Reason',
                width: 'minmax(60px, 2fr)',
                cell: ({ error }) => <span title={error}>{error}</span>,
              },
              {
                key: 'payload',
                title: 'Payload',
                width: 'minmax(90px, 2fr)',
                isMinor: true,
                cell: ({ message: { payload } }) => (typeof payload === 'string' ? <code>{payload}</code> : null),
              },
            ]}
            contentOf={({ message }) => message}
            factsOf={(letter) => [
              ['Subtopic', subtopicOf(letter)],
              ['Reason', letter.error],
              ['Attempts', formatCount(letter.attempts)],
              ['Queued', <Time key="queued" at={letter.created_at} />],
              ['Given up', <Time key="at" at={letter.at} />],
            ]}
            retry={(body) => call('POST /subscriptions/{subscription_id}/dead-letters/retry', { params, body })}
            discard={(body) => call('POST /subscriptions/{subscription_id}/dead-letters/discard', { params, body })}
          >
            A message that the contact did not accept. Retry it when the contact accepts messages again.
          </DeadLetters>
        </>
      )}
    </QueryView>
  )
}

const subtopicOf = ({ message: { subtopic } }: Letter) =>
  typeof subtopic === 'string' && subtopic !== '' ? <code>{subtopic}</code> : <span className="muted">none</span>

function Head({ subscription }: { subscription: Subscription }) {
  const { id, contact, status } = subscription
  const params = { subscription_id: id }
  const navigate = useNavigate()
  const [isDeleting, setDeleting] = useState(false)
  const [confirm, isConfirming] = useAction('The link was not sent', async () => {
    const { message } = await call('POST /subscriptions/{subscription_id}/confirmation', { params })
    return message
  })
  const remove = useFormAction('The subscription was not deleted', async () => {
    await call('DELETE /subscriptions/{subscription_id}', { params })
    await navigate({ to: paths.notifications() })
    return 'The subscription is deleted'
  })
  return (
    <div className="page-head">
      <h1 className="clip" dir="auto">
        {contact}
      </h1>
      <SubscriptionState subscription={subscription} />
      <span className="grow" />
      {status === 'pending' ? (
        <Button icon="send" busy={isConfirming} onClick={() => void confirm()}>
          Send the link again
        </Button>
      ) : null}
      <Menu
        label="More actions"
        icon="more"
        items={[{ label: 'Delete', icon: 'trash', isDanger: true, onSelect: () => setDeleting(true) }]}
      />
      {isDeleting ? (
        <Confirm
          title={`Delete the subscription of ${contact}`}
          submit="Delete subscription"
          action={remove}
          onClose={() => setDeleting(false)}
        >
          Its waiting messages and its dead letters are deleted. This cannot be undone.
        </Confirm>
      ) : null}
    </div>
  )
}

function About({ subscription }: { subscription: Subscription }) {
  const { topic, pending = 0, missed = 0, behind_since: behind, last_error: error, signing_secret: key } = subscription
  return (
    <Card>
      <Facts
        rows={[
          ['Topic', <code key="topic">{topic}</code>],
          ['Waiting', counted(pending, 'message')],
          behind === undefined ? undefined : ['Behind', <WaitingSince key="behind" at={behind} />],
          missed === 0 ? undefined : ['Missed', `${counted(missed, 'message')} waited for longer than a week`],
          signingSecretRow(key),
        ]}
      />
      <LastFailure error={error} />
    </Card>
  )
}
