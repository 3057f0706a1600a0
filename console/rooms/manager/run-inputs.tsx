/** What a run was started with, and another run or a trial with the same. */
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { call } from '../../api/call.ts'
import { formatJson } from '../../api/json.ts'
import type { Run } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import { Button, Code } from '../../design/controls.tsx'
import { Card, Notice, counted, formatBytes } from '../../design/display.tsx'
import { paths } from '../../paths.ts'
import { useAction } from '../../shell/action.ts'
import { useDomainDenied } from '../../shell/permissions.ts'

/** Records of a message that are shown; the page of the channel shows all. */
const MAX_RECORDS = 50

export function RunInputs({ domain, run }: { domain: string; run: Run }) {
  const { cause, inputs, cli_args: args, input_bytes: omitted } = run
  const navigate = useNavigate()
  const cannotRun = useDomainDenied(domain)('task_start')
  const [again, isStarting] = useAction('The run was not started', async () => {
    const params = { task_id: run.task_id }
    const body = { ...(inputs === undefined ? {} : { inputs }), ...(args === undefined ? {} : { cli_args: args }) }
    const { run_id: next } =
      run.kind === 'invoke'
        ? await call('POST /tasks/{task_id}/invoke', { params, body: { ...body, wait: '10s', timeout: '30s' } })
        : await call('POST /tasks/{task_id}/start', { params, body })
    await navigate({ to: paths.run(domain, run.task_id, next) })
  })
  const hasMessage = cause?.channel_id !== undefined && cause.message !== undefined
  const isRepeatable = inputs !== undefined && run.kind !== 'broadcast'
  const trial = paths.tryModule(domain, { task: run.task_id, run: run.id })
  return (
    <Card
      title="Inputs"
      className="half"
      actions={
        <>
          {isRepeatable ? (
            <Button small icon="play" busy={isStarting} disabledReason={cannotRun} onClick={() => void again()}>
              Run again with these
            </Button>
          ) : null}
          {(inputs !== undefined || hasMessage) && run.module_digest !== '' ? (
            <Link className="button small" to={trial}>
              Try in the browser with these
            </Link>
          ) : null}
        </>
      }
    >
      {run.function === undefined ? null : (
        <p>
          Function <code>{run.function}</code>
        </p>
      )}
      {inputs === undefined ? null : inputs.length === 0 ? (
        <p className="muted">No inputs</p>
      ) : (
        <Code label="inputs" wrap text={formatJson(inputs, 2)} />
      )}
      {args === undefined || args.length === 0 ? null : <Code label="arguments" wrap text={formatJson(args)} />}
      {omitted === undefined ? null : (
        <Notice tone="plain">They are too large to be shown: {formatBytes(omitted)}.</Notice>
      )}
      {hasMessage ? (
        <MessageInputs domain={domain} channel={cause.channel_id ?? ''} message={cause.message ?? ''} />
      ) : inputs === undefined && omitted === undefined ? (
        <p className="muted">The inputs are not known.</p>
      ) : null}
      {(cause?.messages ?? 1) > 1 ? (
        <p className="muted small">and {counted((cause?.messages ?? 1) - 1, 'more message')}</p>
      ) : null}
    </Card>
  )
}

/** The message, as far as the user may read its channel. */
function MessageInputs({ domain, channel, message }: { domain: string; channel: string; message: string }) {
  const found = useQuery(
    query('GET /{domain_id}/channels/{channel_id}/messages', {
      params: { domain_id: domain, channel_id: channel },
      query: { message, limit: MAX_RECORDS, dir: 'asc' },
    }),
  )
  if (found.error !== null) return <p className="muted">The message cannot be read: {found.error.message}.</p>
  const records = found.data?.messages ?? []
  if (found.data !== undefined && records.length === 0)
    return <p className="muted">The message is no longer stored, or is not SenML.</p>
  const shown = records.map(({ channel: _channel, publisher: _publisher, protocol: _protocol, ...record }) => record)
  return (
    <>
      <p>
        The records of{' '}
        <Link to={paths.messages(domain, channel, { message })}>
          message <code>{message}</code>
        </Link>
      </p>
      <Code label="records" wrap text={formatJson(shown, 2)} />
    </>
  )
}
