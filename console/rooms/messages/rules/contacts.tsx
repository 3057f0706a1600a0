/** To whom a rule sends mails and webhook requests, and what it could not deliver. */
import { useQuery } from '@tanstack/react-query'
import { call } from '../../../api/call.ts'
import type { Rule, RuleContact, RuleDeadLetter } from '../../../api/operations.ts'
import { query } from '../../../api/queries.ts'
import { Card, Facts, Time, counted, formatCount } from '../../../design/display.tsx'
import { DeadLetters } from '../../../shell/dead-letters.tsx'
import { LastFailure, signingSecretRow } from '../../../shell/deliveries.tsx'
import { useDomainDenied } from '../../../shell/permissions.ts'

const REFRESH_MS = 5_000
const DEAD_LETTERS = 'GET /{domain_id}/rules/{rule_id}/dead-letters'

type OfRule = { domain: string; rule: Rule }

/** Shown to those who may change the rule: it has the secrets of signatures. */
export function RuleContacts({ domain, rule }: OfRule) {
  const cannotUpdate = useDomainDenied(domain)('rule_update')
  const isNotifying = rule.actions.some(({ type }) => type === 'mail' || type === 'webhook')
  if (!isNotifying || cannotUpdate !== undefined) return null
  return <Contacts domain={domain} rule={rule} />
}

function Contacts({ domain, rule }: OfRule) {
  const params = { domain_id: domain, rule_id: rule.id }
  const { data } = useQuery({
    ...query('GET /{domain_id}/rules/{rule_id}/contacts', { params }),
    refetchInterval: REFRESH_MS,
  })
  const contacts = data?.contacts ?? []
  return (
    <>
      <Card title="Contacts">
        {contacts.map((contact) => (
          <OneContact key={contact.id} contact={contact} />
        ))}
      </Card>
      {contacts.some((contact) => contact.dead_letters > 0) ? <Letters params={params} /> : null}
    </>
  )
}

function OneContact({ contact }: { contact: RuleContact }) {
  const { status, pending, signing_secret: key, last_error: error } = contact
  return (
    <div>
      <Facts
        rows={[
          [
            'Contact',
            <span key="contact" className="clip" dir="auto">
              {contact.contact}
            </span>,
          ],
          status === 'pending'
            ? ['State', 'pending: it gets mails when the link that was mailed to it is opened']
            : undefined,
          ['Waiting', counted(pending, 'notification')],
          signingSecretRow(key),
        ]}
      />
      <LastFailure error={error} />
    </div>
  )
}

function Letters({ params }: { params: { domain_id: string; rule_id: string } }) {
  return (
    <DeadLetters<RuleDeadLetter>
      queryKey={[DEAD_LETTERS, params]}
      fetchPage={async ({ signal, ...page }) => {
        const { total, dead_letters: rows } = await call(DEAD_LETTERS, { params, query: page, signal })
        return { total, rows }
      }}
      columns={[
        { key: 'at', title: 'Given up', width: '90px', cell: ({ at }) => <Time at={at} /> },
        {
          key: 'contact',
          title: 'Contact',
          width: 'minmax(80px, 1fr)',
          cell: ({ contact }) => <span title={contact}>{contact}</span>,
        },
        { key: 'attempts', title: 'Attempts', width: '80px', isMinor: true, cell: ({ attempts }) => attempts },
        {
          key: 'error',
          title: 'Reason',
          width: 'minmax(60px, 2fr)',
          cell: ({ error }) => <span title={error}>{error}</span>,
        },
      ]}
      contentOf={({ text }) => text}
      factsOf={(letter) => [
        ['Contact', letter.contact],
        ['Subject', letter.subject ?? 'none'],
        ['Reason', letter.error],
        ['Attempts', formatCount(letter.attempts)],
        ['Queued', <Time key="queued" at={letter.created_at} />],
        ['Given up', <Time key="at" at={letter.at} />],
      ]}
      retry={(body) => call('POST /{domain_id}/rules/{rule_id}/dead-letters/retry', { params, body })}
      discard={(body) => call('POST /{domain_id}/rules/{rule_id}/dead-letters/discard', { params, body })}
    >
      A mail or webhook request that the contact did not accept. Retry it when the contact accepts it again.
    </DeadLetters>
  )
}
