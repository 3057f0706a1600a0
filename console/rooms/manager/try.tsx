/** A module on its way to a task: it runs in the browser on inputs or on the last hour of a channel, and is then deployed. */
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import { formatJson } from '../../api/json.ts'
import type { InspectedModule } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import { Button, Code, Field, Segments, SelectField, TextField } from '../../design/controls.tsx'
import { Card, Facts, Notice, State, formatBytes, formatCount, formatDuration } from '../../design/display.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { paths } from '../../paths.ts'
import { useAction, useFormAction } from '../../shell/action.ts'
import { useDomainDenied } from '../../shell/permissions.ts'
import { useDomainId, useViews } from '../../shell/url.ts'
import { inputText, parametersOf } from './inputs.ts'
import { createTask } from './tasks.tsx'
import { functionsOf, isCommand, runToTry, runTrial } from './trial.ts'
import type { GivenRun, ModuleFunction, Trial } from './trial.ts'
import { takesMessages } from './trigger-calls.ts'
import { ModuleDrop } from './upload.tsx'

const SHOWN_OUTCOMES = 50
const SHOWN_PUBLICATIONS = 50
const SHOWN_CHANNELS = 100
/** The memory of a task that sets no other limit. */
const DEFAULT_MEMORY_BYTES = 67_108_864

export function TryModule() {
  const domain = useDomainId()
  const [{ task = '', run = '' }] = useViews()
  const [file, setFile] = useState<File>()
  const [inspected, setInspected] = useState<InspectedModule>()
  const [given, setGiven] = useState<GivenRun>()
  useEffect(() => {
    document.title = 'Try a module · Skein'
  }, [])
  const [inspect, isBusy] = useAction('The module was not read', async (chosen: File) => {
    setInspected(undefined)
    setFile(chosen)
    setInspected(
      await call('POST /modules/inspect', {
        query: { domain_id: domain },
        headers: { 'Content-Type': 'application/wasm' },
        body: chosen,
      }),
    )
  })
  const [load, isLoading] = useAction('The module of the run was not loaded', async () => {
    const { module, of } = await runToTry(task, run)
    await inspect(module)
    setGiven(of)
  })
  useEffect(() => {
    if (task !== '' && run !== '') void load()
  }, [load, task, run])
  return (
    <>
      <div className="page-head">
        <h1 className="grow">Try a module</h1>
      </div>
      <Card>
        <ModuleDrop file={file} onFile={(chosen) => (setGiven(undefined), void inspect(chosen))} />
        {given === undefined ? null : (
          <p>
            The module of <Link to={paths.run(domain, task, run)}>a run of {given.taskName}</Link>, on what it was
            started with.
          </p>
        )}
        <p className="muted small">
          The module runs in this browser, without access to this page, its session or the network. What it would
          publish is listed and not sent.
        </p>
      </Card>
      {file === undefined || inspected === undefined || isBusy || isLoading ? null : (
        <Inspected key={inspected.digest} domain={domain} file={file} inspected={inspected} given={given} />
      )}
    </>
  )
}

function Inspected({
  domain,
  file,
  inspected,
  given,
}: {
  domain: string
  file: File
  inspected: InspectedModule
  given: GivenRun | undefined
}) {
  const functions = functionsOf(inspected)
  const isGiven = functions.some((one) => one.name === given?.function)
  const [name, setName] = useState((isGiven ? given?.function : functions[0]?.name) ?? '')
  const [isDeploying, setDeploying] = useState(false)
  const [trial, setTrial] = useState<Trial>()
  const [channel, setChannel] = useState('')
  const chosen = functions.find((one) => one.name === name)
  const canRun = inspected.refusal === undefined
  const cannotCreate = useDomainDenied(domain)('task_create')
  const deploy = (
    <Button icon="send" disabledReason={cannotCreate} onClick={() => setDeploying(true)}>
      Deploy
    </Button>
  )
  return (
    <>
      {inspected.refusal === undefined ? null : <Notice tone="bad">{inspected.refusal}</Notice>}
      {canRun && chosen === undefined ? <Notice tone="bad">The module exports no function.</Notice> : null}
      {canRun && chosen !== undefined ? (
        <div className="grid">
          <Card title="Run it here" className="half">
            {functions.length > 1 ? (
              <SelectField
                label="Function"
                value={name}
                onChange={(value) => (setName(value), setTrial(undefined))}
                options={functions.map((one): [string, string] => [one.name, signatureOf(one)])}
              />
            ) : (
              <p>
                Function <code>{signatureOf(chosen)}</code>
              </p>
            )}
            <RunForm
              key={name}
              domain={domain}
              module={{ file, kind: inspected.kind }}
              chosen={chosen}
              given={given?.function === undefined || given.function === name ? given : undefined}
              channel={channel}
              onChannel={setChannel}
              onTrial={setTrial}
            />
            {inspected.kind === 'component' ? (
              <p className="muted small">
                A component is transpiled first, as on a worker: a large one takes some seconds. On your machine,{' '}
                <code>skein modules try</code> runs it with the limits of a task.
              </p>
            ) : null}
            {trial === undefined ? null : <div className="row">{deploy}</div>}
          </Card>
          {trial === undefined ? null : <Report trial={trial} />}
        </div>
      ) : null}
      {isDeploying ? (
        <Deploy
          domain={domain}
          file={file}
          functionName={chosen === undefined || isCommand(chosen) ? '' : name}
          channel={channel}
          trial={trial}
          onClose={() => setDeploying(false)}
        />
      ) : null}
    </>
  )
}

const signatureOf = ({ name, params, results }: ModuleFunction) =>
  `${name}(${params.join(', ')})${results.length === 0 ? '' : ` -> ${results.join(', ')}`}`

function useChannels(domain: string) {
  const found = useQuery(
    query('GET /{domain_id}/channels', {
      params: { domain_id: domain },
      query: { limit: SHOWN_CHANNELS, order: 'name', dir: 'asc' },
    }),
  )
  return (found.data?.channels ?? []).map(({ id, name }): [string, string] => [id, name === '' ? id : name])
}

function RunForm({
  domain,
  module,
  chosen,
  given,
  channel,
  onChannel,
  onTrial,
}: {
  domain: string
  module: { file: File; kind: InspectedModule['kind'] }
  chosen: ModuleFunction
  given: GivenRun | undefined
  channel: string
  onChannel: (id: string) => void
  onTrial: (trial: Trial | undefined) => void
}) {
  const message = given?.message
  const [kind, setKind] = useState<'inputs' | 'channel' | 'message'>(message === undefined ? 'inputs' : 'message')
  const [values, setValues] = useState<readonly string[]>(() =>
    parametersOf(chosen.params).map((parameter, at) => inputText(parameter, given?.inputs?.[at])),
  )
  const [stdin, setStdin] = useState('')
  const [fault, setFault] = useState<string>()
  const [isBusy, setBusy] = useState(false)
  const channels = useChannels(domain)
  const parameters = parametersOf(chosen.params)
  const run = async () => {
    setBusy(true)
    setFault(undefined)
    onTrial(undefined)
    try {
      const source =
        kind === 'inputs'
          ? ({ kind, values, stdin } as const)
          : kind === 'message' && message !== undefined
            ? ({ kind, ...message } as const)
            : ({ kind: 'channel', channel } as const)
      onTrial(await runTrial(domain, module, chosen, source))
    } catch (error) {
      setFault(error instanceof Error ? error.message : String(error))
    } finally {
      setBusy(false)
    }
  }
  return (
    <form
      className="form"
      onSubmit={(event) => {
        event.preventDefault()
        void run()
      }}
    >
      {takesMessages(chosen.params) ? (
        <Segments
          label="Run it on"
          value={kind}
          onChange={setKind}
          options={[
            ['inputs', 'inputs'],
            ['channel', 'the last hour of a channel'],
            ...(message === undefined ? [] : [['message', 'the message of the run'] as const]),
          ]}
        />
      ) : null}
      {kind === 'channel' ? (
        <SelectField
          label="Channel"
          value={channel}
          onChange={onChannel}
          options={[['', 'Choose a channel'], ...channels]}
        />
      ) : kind === 'message' ? null : (
        parameters.map((parameter, index) => (
          <Field key={index} label={`${parameter.name} (${parameter.type})`}>
            {(ids) => (
              <input
                className="input"
                {...ids}
                value={values[index] ?? ''}
                onChange={(event) =>
                  setValues(parameters.map((_one, at) => (at === index ? event.target.value : (values[at] ?? ''))))
                }
              />
            )}
          </Field>
        ))
      )}
      {kind === 'inputs' && isCommand(chosen) ? (
        <TextField label="Standard input" value={stdin} onChange={setStdin} />
      ) : null}
      {fault === undefined ? null : <Notice tone="bad">{fault}</Notice>}
      <div className="row">
        <Button
          type="submit"
          kind="primary"
          icon="play"
          busy={isBusy}
          disabledReason={kind === 'channel' && channel === '' ? 'Choose a channel' : undefined}
        >
          Run
        </Button>
      </div>
    </form>
  )
}

const MAX_SHOWN_CHARACTERS = 500

/** The text of a value in base64; bytes that are none stay in base64. */
function textOfValue(base64: string): string {
  const bytes = Uint8Array.from(atob(base64), (character) => character.codePointAt(0) ?? 0)
  let text = `base64 ${base64}`
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    // It is no text.
  }
  return text.length > MAX_SHOWN_CHARACTERS
    ? `${text.slice(0, MAX_SHOWN_CHARACTERS)}… (${formatBytes(bytes.length)})`
    : text
}

function Report({ trial }: { trial: Trial }) {
  const { report, calls } = trial
  const { outcomes, publications, state } = report
  const failed = outcomes.filter(({ error }) => error !== undefined).length
  const total = outcomes.reduce((sum, { durationMs }) => sum + durationMs, 0)
  return (
    <div className="half stack wide">
      <Card title="What happened">
        {failed === 0 ? (
          <State tone="ok">
            {outcomes.length === 1 ? 'Completed' : `${formatCount(outcomes.length)} runs completed`}
          </State>
        ) : (
          <State tone="bad">{`${formatCount(failed)} of ${formatCount(outcomes.length)} runs failed`}</State>
        )}
        <Facts
          rows={[
            ['Time', formatDuration(total)],
            ['Compiled in', formatDuration(report.compileMs)],
            ['Memory', formatBytes(report.memoryBytes)],
            report.reads.length === 0
              ? undefined
              : ['Reads', report.reads.map((one) => one || '(no topic)').join(', ')],
          ]}
        />
        {report.memoryBytes > DEFAULT_MEMORY_BYTES ? (
          <Notice tone="warn">
            A task has {formatBytes(DEFAULT_MEMORY_BYTES)} of memory, unless its limit is set to more.
          </Notice>
        ) : null}
        <ul className="plain-list" aria-label="Results">
          {outcomes.slice(0, SHOWN_OUTCOMES).map((outcome, index) => (
            <li key={index}>
              <code>
                {calls[index]?.inputs.length === 0 ? '' : `${formatJson(calls[index]?.inputs)} → `}
                {outcome.error ?? formatJson(outcome.results)}
              </code>
            </li>
          ))}
        </ul>
        {outcomes.length > SHOWN_OUTCOMES ? (
          <p className="muted small">and {formatCount(outcomes.length - SHOWN_OUTCOMES)} more</p>
        ) : null}
      </Card>
      {publications.length === 0 ? null : (
        <Card title={`Would publish ${formatCount(publications.length)}`}>
          <ul className="plain-list" aria-label="Publications">
            {publications.slice(0, SHOWN_PUBLICATIONS).map(({ topic, payload }, index) => (
              <li key={index}>
                <code>
                  {topic === '' ? '(no topic)' : topic} {payload}
                </code>
              </li>
            ))}
          </ul>
        </Card>
      )}
      {state.length === 0 ? null : (
        <Card title={`Would keep ${formatCount(state.length)} ${state.length === 1 ? 'key' : 'keys'}`}>
          <p className="muted small">
            The state of a trial is in memory: it begins empty, its runs share it, and nothing is stored.
          </p>
          <ul className="plain-list" aria-label="State">
            {state.slice(0, SHOWN_PUBLICATIONS).map(({ bucket, key, value }) => (
              <li key={`${bucket} ${key}`}>
                <code dir="auto">
                  {bucket === 'client' ? 'of the client: ' : ''}
                  {key} = {textOfValue(value)}
                </code>
              </li>
            ))}
          </ul>
          {state.length > SHOWN_PUBLICATIONS ? (
            <p className="muted small">and {formatCount(state.length - SHOWN_PUBLICATIONS)} more</p>
          ) : null}
        </Card>
      )}
      {report.stdout === '' ? null : (
        <Card title="Output">
          <Code label="standard output" text={report.stdout} />
        </Card>
      )}
      {report.stderr === '' ? null : (
        <Card title="Errors">
          <Code label="standard error" text={report.stderr} />
        </Card>
      )}
    </div>
  )
}

/** What the guest calls a topic begins with the name of a grant. */
const grantNameOf = (topic: string) => topic.split('/', 1)[0] ?? ''

function Deploy({
  domain,
  file,
  functionName,
  channel,
  trial,
  onClose,
}: {
  domain: string
  file: File
  functionName: string
  channel: string
  trial: Trial | undefined
  onClose: () => void
}) {
  const navigate = useNavigate()
  const channels = useChannels(domain)
  const [name, setName] = useState(file.name.replace(/\.wasm$/, ''))
  const [trigger, setTrigger] = useState(channel)
  const wanted = [
    ...new Map(
      [
        ...(trial?.report.publications ?? []).map(({ topic }) => ({
          kind: 'publish' as const,
          name: grantNameOf(topic),
        })),
        ...(trial?.report.reads ?? []).map((topic) => ({ kind: 'read' as const, name: grantNameOf(topic) })),
      ].map((one) => [`${one.kind} ${one.name}`, one]),
    ).values(),
  ]
  const [granted, setGranted] = useState<Record<string, string>>({})
  const keyOf = (one: (typeof wanted)[number]) => `${one.kind} ${one.name}`
  const isMissing = wanted.some((one) => (granted[keyOf(one)] ?? '') === '')
  const create = useFormAction('The module was not deployed', async () => {
    const task = await createTask(
      {
        name: name.trim(),
        domain_id: domain,
        ...(functionName === '' ? {} : { function: functionName }),
        ...(trigger === '' ? {} : { trigger: { channel_id: trigger } }),
        ...(wanted.length === 0
          ? {}
          : {
              grants: wanted.map((one) => ({
                kind: one.kind,
                channel_id: granted[keyOf(one)] ?? '',
                ...(one.name === '' ? {} : { name: one.name }),
              })),
            }),
      },
      file,
    )
    await navigate({ to: paths.task(domain, task.id) })
  })
  return (
    <FormDialog
      title="Deploy"
      submit="Create task"
      action={create}
      onClose={onClose}
      disabledReason={isMissing ? 'Choose a channel for each grant' : undefined}
    >
      <TextField label="Name" field="name" value={name} onChange={setName} required autoFocus />
      <SelectField
        label="Runs for each message of"
        field="trigger"
        value={trigger}
        onChange={setTrigger}
        options={[['', 'No channel: it is started by hand'], ...channels]}
      />
      {wanted.map((one, index) => (
        <SelectField
          key={keyOf(one)}
          field={`grants.${index}`}
          label={`${one.kind === 'publish' ? 'Publishes to' : 'Reads from'} ${one.name === '' ? 'its channel' : one.name}`}
          value={granted[keyOf(one)] ?? ''}
          onChange={(value) => setGranted({ ...granted, [keyOf(one)]: value })}
          options={[['', 'Choose a channel'], ...channels]}
        />
      ))}
    </FormDialog>
  )
}
