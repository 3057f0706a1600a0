/** What subscriptions and contacts of rules show of their deliveries. */
import type { ReactNode } from 'react'
import { CopyButton } from '../design/controls.tsx'
import { Notice, Time, formatCount } from '../design/display.tsx'

/** A row of facts; undefined for a contact whose deliveries are not signed. */
export const signingSecretRow = (key: string | undefined): [string, ReactNode] | undefined =>
  key === undefined
    ? undefined
    : [
        'Signing secret',
        <span key="secret" className="row">
          <span className="muted">verifies the requests of the webhook</span>
          <CopyButton text={key} label="Copy signing secret" />
        </span>,
      ]

type Failure = { at: string; reason: string; count: number }

export function LastFailure({ error }: { error: Failure | undefined }) {
  if (error === undefined) return null
  return (
    <Notice tone="bad">
      {error.reason} (<Time at={error.at} />
      {error.count === 1 ? '' : `, ${formatCount(error.count)} times since the last delivery`})
    </Notice>
  )
}
