/** Why a run exists: its cause, as a link to what caused it. */
import { Link } from '@tanstack/react-router'
import type { Run } from '../../api/operations.ts'
import { Time } from '../../design/display.tsx'
import { paths } from '../../paths.ts'
import { ChannelName } from '../../shell/names.tsx'

export type Cause = NonNullable<Run['cause']>

const WORDS: Readonly<Record<Cause['type'], string>> = {
  user: 'a user',
  message: 'a message',
  replay: 'a replay',
  schedule: 'the schedule',
  workflow: 'a workflow',
}
export const CAUSES = Object.keys(WORDS) as Cause['type'][]

export function RunCause({ domain, run }: { domain: string; run: Pick<Run, 'cause'> }) {
  const { cause } = run
  if (cause === undefined) return <span className="muted">unknown</span>
  const { type, channel_id: channel, message, messages = 1, tick, workflow_id: workflow } = cause
  if (channel !== undefined) {
    return (
      <span>
        <Link to={paths.messages(domain, channel, message === undefined ? {} : { message })}>{WORDS[type]}</Link>
        {messages > 1 ? ` and ${messages - 1} more` : ''} of <ChannelName domain={domain} id={channel} />
      </span>
    )
  }
  if (workflow !== undefined) return <Link to={paths.workflow(domain, workflow)}>{WORDS[type]}</Link>
  if (tick === undefined) return <span>{WORDS[type]}</span>
  return (
    <span>
      {WORDS[type]}, <Time at={tick} />
    </span>
  )
}
