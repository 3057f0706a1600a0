/** Why a run exists: its cause, as a link to what caused it. */
import { Link } from '@tanstack/react-router'
import type { Run } from '../../api/operations.ts'
import { Time } from '../../design/display.tsx'
import { paths } from '../../paths.ts'
import { ChannelName, ClientLabel } from '../../shell/names.tsx'

export type Cause = NonNullable<Run['cause']>

const WORDS: Readonly<Record<Cause['type'], string>> = {
  user: 'a user',
  message: 'a message',
  replay: 'a replay',
  schedule: 'the schedule',
  workflow: 'a workflow',
  command: 'a command',
}
export const CAUSES = Object.keys(WORDS) as Cause['type'][]

export function RunCause({ domain, run }: { domain: string; run: Pick<Run, 'id' | 'cause'> }) {
  const { cause } = run
  if (cause === undefined) return <span className="muted">unknown</span>
  const {
    type,
    channel_id: channel,
    message,
    messages = 1,
    tick,
    workflow_id: workflow,
    client_id: client,
    command,
  } = cause
  if (channel !== undefined) {
    return (
      <span>
        <Link to={paths.messages(domain, channel, message === undefined ? {} : { message })}>{WORDS[type]}</Link>
        {messages > 1 ? ` and ${messages - 1} more` : ''} of <ChannelName domain={domain} id={channel} />
      </span>
    )
  }
  if (client !== undefined) {
    return (
      <span>
        <Link to={paths.command(domain, client, run.id)}>the command {command}</Link> to{' '}
        <ClientLabel domain={domain} id={client} />
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
