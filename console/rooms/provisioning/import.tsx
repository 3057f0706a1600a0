/** Clients or channels from a CSV file: the server checks the whole file first and says what is wrong, line by line. */
import { Link } from '@tanstack/react-router'
import { useEffect, useRef, useState } from 'react'
import { call } from '../../api/call.ts'
import { ApiError } from '../../api/errors.ts'
import { refresh } from '../../api/queries.ts'
import { Button, Segments } from '../../design/controls.tsx'
import { Card, Empty, Notice, counted, formatBytes, formatCount } from '../../design/display.tsx'
import { paths } from '../../paths.ts'
import { csvOf, saveFile } from '../../shell/files.ts'
import { useDomainDenied } from '../../shell/permissions.ts'
import { useDomainId } from '../../shell/url.ts'

type Kind = 'clients' | 'channels' | 'connections'
const NOUNS: Readonly<Record<Kind, string>> = { clients: 'client', channels: 'channel', connections: 'connection' }
const COLUMNS: Readonly<Record<Kind, string>> = {
  clients: 'id, name, secret, tags, metadata, status',
  channels: 'id, name, route, description, tags, metadata, status',
  connections: 'client_id, channel_id',
}
/** Files that can be imported as they are; those of connections need the ids of clients and channels. */
const EXAMPLES: Readonly<Record<Kind, string>> = {
  clients: 'name,tags,metadata\nmeter 1,indoor;floor-3,"{""serial"": ""A-17""}"\nmeter 2,,\n',
  channels: 'name,route,description,tags\nreadings,,Values of all meters,indoor\nalarms,alarms,,\n',
  connections: 'client_id,channel_id\n<id of a client>,<id of a channel>\n',
}
/** Rows of the table at first, and more of them with each click. */
const PREVIEW_LINES = 50
const MORE_LINES = 500
const LINE = /^line (\d+)/
/** The server begins some of its sentences with it, and the notice says it too. */
const NOTHING_CREATED = /^nothing was created: /

/** `hidden`: changes of entities that the caller may not read. */
type Checked = { total: number; hidden: number }
type Check = Checked | { error: ApiError }

/** An entity in the answer to a file of clients. */
type Created = { id: string; name: string; credentials?: { secret: string } }
type Made = { total: number; created: readonly Created[] }

type Report = {
  total: number
  hidden?: number
  rows?: { table: string; created: number }[]
  clients?: Created[]
  channels?: Created[]
}

/** The number of entities that a file would create. */
async function checkFile(kind: Kind, domain: string, file: Blob): Promise<Checked> {
  const { total, hidden = 0, rows } = await post(kind, domain, file, true)
  return { total: rows === undefined ? total : (rows.find(({ table }) => table === kind)?.created ?? 0), hidden }
}

async function create(kind: Kind, domain: string, file: Blob): Promise<Made> {
  const { total, clients, channels } = await post(kind, domain, file, false)
  return { total, created: clients ?? channels ?? [] }
}

async function post(kind: Kind, domain: string, file: Blob, isTrial: boolean): Promise<Report> {
  const input = {
    params: { domain_id: domain },
    query: isTrial ? { dry_run: true } : {},
    headers: { 'Content-Type': 'text/csv' },
    // Its bytes: the server recognizes the encoding.
    body: file,
  }
  if (kind === 'clients') return (await call('POST /{domain_id}/clients/import', input)) as Report
  if (kind === 'channels') return (await call('POST /{domain_id}/channels/import', input)) as Report
  return (await call('POST /{domain_id}/connections/import', input)) as Report
}

/** The text for the preview. The server alone knows what it imports. */
function previewOf(bytes: Uint8Array): string {
  const isUtf16 = bytes[0] === 0xff && bytes[1] === 0xfe
  return new TextDecoder(isUtf16 ? 'utf-16le' : 'utf-8').decode(bytes)
}

/** A file as it was when it was chosen: what is created is what was checked, also when the file on the disk changes. */
type Chosen = { readonly name: string; readonly bytes: Blob; readonly text: string }

async function readFile(file: File): Promise<Chosen> {
  const content = await file.arrayBuffer()
  return { name: file.name, bytes: new Blob([content]), text: previewOf(new Uint8Array(content)) }
}

function resultFile(kind: Kind, created: readonly Created[]): string {
  const rows = created.map(({ id, name, credentials }) => [
    id,
    name,
    ...(kind === 'clients' ? [credentials?.secret ?? ''] : []),
  ])
  return csvOf(['id', 'name', ...(kind === 'clients' ? ['secret'] : [])], rows)
}

function faultsFile(lines: readonly string[], faults: ReadonlyMap<number, string>): string {
  const numbers = [...faults.keys()].toSorted((a, b) => a - b)
  const rows = numbers.map((number) => [String(number), lines[number - 1] ?? '', faults.get(number) ?? ''])
  return csvOf(['line', 'content', 'fault'], rows)
}

/** The end of the last line begins no line. */
function linesOf(text: string): string[] {
  const lines = text.split(/\r?\n/)
  return lines.at(-1) === '' ? lines.slice(0, -1) : lines
}

/** What the server says of each line. */
function faultsOf(check: Check | undefined): { lines: ReadonlyMap<number, string>; others: readonly string[] } {
  const lines = new Map<number, string>()
  const others: string[] = []
  for (const { path, message } of check !== undefined && 'error' in check ? check.error.details : []) {
    const line = LINE.exec(path)?.[1]
    if (line === undefined) others.push(`${path} ${message}`)
    else lines.set(Number(line), [lines.get(Number(line)), message].filter((part) => part !== undefined).join('; '))
  }
  return { lines, others }
}

export function Import() {
  const domain = useDomainId()
  const [kind, setKind] = useState<Kind>('clients')
  const denied = useDomainDenied(domain)
  // A connection is allowed by its client and its channel, which the check of the file asks.
  const cannotCreate =
    kind === 'connections' ? undefined : denied(kind === 'clients' ? 'client_create' : 'channel_create')
  const [file, setFile] = useState<Chosen>()
  const [check, setCheck] = useState<Check>()
  const [isBusy, setBusy] = useState(false)
  const [made, setMade] = useState<Made>()
  const [limit, setLimit] = useState(PREVIEW_LINES)
  const input = useRef<HTMLInputElement>(null)
  useEffect(() => {
    document.title = 'Import · Skein'
  }, [])
  const attempt = async (act: () => Promise<void>) => {
    setBusy(true)
    try {
      await act()
    } catch (error) {
      setCheck({ error: error instanceof ApiError ? error : ApiError.unreachable(error) })
    } finally {
      setBusy(false)
    }
  }
  const test = async (what: Kind, chosen: Chosen) =>
    await attempt(async () => setCheck(await checkFile(what, domain, chosen.bytes)))
  const importFile = async (chosen: Chosen) =>
    await attempt(async () => {
      setMade(await create(kind, domain, chosen.bytes))
      await refresh()
    })
  const choose = async (picked: File) => {
    const chosen = await readFile(picked)
    setFile(chosen)
    setMade(undefined)
    setCheck(undefined)
    setLimit(PREVIEW_LINES)
    await test(kind, chosen)
  }
  const faults = faultsOf(check)
  const lines = linesOf(file?.text ?? '')
  const shown = [...new Set([...faults.lines.keys(), ...lines.keys().map((index) => index + 1)])]
    .slice(0, limit)
    .toSorted((a, b) => a - b)
  return (
    <>
      <div className="page-head">
        <h1>Import</h1>
      </div>
      <Card>
        <div className="row wrap">
          <Segments
            label="What the file contains"
            value={kind}
            onChange={(next) => {
              setKind(next)
              setCheck(undefined)
              setMade(undefined)
              if (file !== undefined) void test(next, file)
            }}
            options={[
              ['clients', 'Clients'],
              ['channels', 'Channels'],
              ['connections', 'Connections'],
            ]}
          />
          <span className="muted">
            Columns: <code>{COLUMNS[kind]}</code>
          </span>
          <Button icon="file" onClick={() => saveFile(`${kind}.csv`, EXAMPLES[kind])}>
            Download an example
          </Button>
        </div>
        <div
          className="drop"
          role="group"
          aria-label="CSV file"
          onDragOver={(event) => event.preventDefault()}
          onDrop={(event) => {
            event.preventDefault()
            const [dropped] = event.dataTransfer.files
            if (dropped !== undefined && cannotCreate === undefined) void choose(dropped)
          }}
        >
          <div>{file === undefined ? 'Drop a CSV file here' : `${file.name}, ${formatBytes(file.bytes.size)}`}</div>
          <Button disabledReason={cannotCreate} onClick={() => input.current?.click()}>
            {file === undefined ? 'Choose a file' : 'Choose another'}
          </Button>
          <input
            ref={input}
            type="file"
            disabled={cannotCreate !== undefined}
            accept=".csv,text/csv"
            className="visually-hidden"
            tabIndex={-1}
            aria-label="CSV file to import"
            onChange={(event) => {
              const [chosen] = event.target.files ?? []
              if (chosen !== undefined) void choose(chosen)
              // The same file chosen again is a change too.
              event.target.value = ''
            }}
          />
        </div>
      </Card>
      {made !== undefined ? (
        <Notice
          tone="ok"
          actions={
            <Link
              to={
                kind === 'channels'
                  ? paths.channels(domain)
                  : kind === 'clients'
                    ? paths.clients(domain)
                    : paths.connections(domain)
              }
            >
              Show them
            </Link>
          }
        >
          {counted(made.total, NOUNS[kind])} {made.total === 1 ? 'is' : 'are'} created.{' '}
          {made.created.length === 0 ? null : (
            <>
              {kind === 'clients' ? 'Their secrets are in this file. ' : ''}
              <Button icon="file" onClick={() => saveFile(`${kind}-created.csv`, resultFile(kind, made.created))}>
                {kind === 'clients' ? 'Download ids and secrets' : 'Download ids'}
              </Button>
            </>
          )}
        </Notice>
      ) : check === undefined ? null : 'error' in check ? (
        <Notice tone="bad">
          Nothing was created: {check.error.message.replace(NOTHING_CREATED, '')}.
          {faults.lines.size === 0
            ? ''
            : ` ${counted(faults.lines.size, 'line')} ${faults.lines.size === 1 ? 'is' : 'are'} marked below.`}{' '}
          {faults.lines.size <= PREVIEW_LINES ? null : (
            <Button icon="file" onClick={() => saveFile(`${kind}-faults.csv`, faultsFile(lines, faults.lines))}>
              Download the faults
            </Button>
          )}
          {faults.others.length === 0 ? null : (
            <ul className="small">
              {faults.others.map((fault) => (
                <li key={fault}>{fault}</li>
              ))}
            </ul>
          )}
        </Notice>
      ) : (
        <Notice
          tone="ok"
          actions={
            <Button
              kind="primary"
              busy={isBusy}
              disabledReason={cannotCreate}
              onClick={() => void (file === undefined ? undefined : importFile(file))}
            >
              Create {counted(check.total, NOUNS[kind])}
            </Button>
          }
        >
          The file is right: {counted(check.total, NOUNS[kind])}. All are created together, or none.
          {check.hidden === 0
            ? ''
            : ` ${counted(check.hidden, 'change')} of entities that you may not read ${check.hidden === 1 ? 'is' : 'are'} among them.`}
        </Notice>
      )}
      {file === undefined ? null : (
        <Card
          title={
            lines.length > limit
              ? `${limit} of ${formatCount(lines.length)} lines${faults.lines.size === 0 ? '' : ', those with faults first'}`
              : 'The file'
          }
          flush
        >
          {lines.length === 0 ? <Empty icon="file" title="The file is empty" /> : null}
          <div className="scroll-x" tabIndex={0} role="region" aria-label="Lines of the file">
            <table className="plain">
              <thead>
                <tr>
                  <th className="right">Line</th>
                  <th>Content</th>
                  <th>Result</th>
                </tr>
              </thead>
              <tbody>
                {shown.map((number) => (
                  <tr key={number}>
                    <td className="right">{number}</td>
                    <td className="mono">{lines[number - 1]}</td>
                    <td>
                      {faults.lines.has(number) ? <span className="bad-text">{faults.lines.get(number)}</span> : ''}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          {lines.length <= limit ? null : (
            <div className="table-foot">
              <Button onClick={() => setLimit(limit + MORE_LINES)}>Show more lines</Button>
            </div>
          )}
        </Card>
      )}
    </>
  )
}
