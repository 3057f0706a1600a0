/** Clients or channels from a CSV file: the server checks the whole file first and says what is wrong, line by line. */
import { Link } from '@tanstack/react-router'
import { useEffect, useRef, useState } from 'react'
import { call } from '../../api/call.ts'
import { ApiError } from '../../api/errors.ts'
import { refresh } from '../../api/queries.ts'
import { Button, Segments } from '../../design/controls.tsx'
import { Card, Empty, Notice, formatBytes, formatCount } from '../../design/display.tsx'
import { paths } from '../../paths.ts'
import { useDomainId } from '../../shell/url.ts'

type Kind = 'clients' | 'channels' | 'connections'
const COLUMNS: Readonly<Record<Kind, string>> = {
  clients: 'id, name, secret, tags, metadata, status',
  channels: 'id, name, route, description, tags, metadata, status',
  connections: 'client_id, channel_id',
}
const PREVIEW_LINES = 50
const LINE = /^line (\d+)/

type Check = { total: number } | { error: ApiError }

type Report = { total: number; rows?: { table: string; created: number }[] }

/** The number of entities that were created, or that a dry run would create. */
async function send(kind: Kind, domain: string, text: string, isTrial: boolean): Promise<{ total: number }> {
  const { total, rows } = await post(kind, domain, text, isTrial)
  return { total: rows === undefined ? total : (rows.find(({ table }) => table === kind)?.created ?? 0) }
}

async function post(kind: Kind, domain: string, text: string, isTrial: boolean): Promise<Report> {
  const input = {
    params: { domain_id: domain },
    query: isTrial ? { dry_run: true } : {},
    headers: { 'Content-Type': 'text/csv' },
    body: text as never,
  }
  if (kind === 'clients') return (await call('POST /{domain_id}/clients/import', input)) as Report
  if (kind === 'channels') return (await call('POST /{domain_id}/channels/import', input)) as Report
  return (await call('POST /{domain_id}/connections/import', input)) as Report
}

export function Import() {
  const domain = useDomainId()
  const [kind, setKind] = useState<Kind>('clients')
  const [file, setFile] = useState<{ name: string; size: number; text: string }>()
  const [check, setCheck] = useState<Check>()
  const [isBusy, setBusy] = useState(false)
  const [made, setMade] = useState<number>()
  const input = useRef<HTMLInputElement>(null)
  useEffect(() => {
    document.title = 'Import · Skein'
  }, [])
  const run = async (what: Kind, text: string, isTrial: boolean) => {
    setBusy(true)
    try {
      const { total } = await send(what, domain, text, isTrial)
      if (isTrial) setCheck({ total })
      else {
        setMade(total)
        await refresh()
      }
    } catch (error) {
      setCheck({ error: error instanceof ApiError ? error : ApiError.unreachable(error) })
    } finally {
      setBusy(false)
    }
  }
  const choose = async (chosen: File) => {
    const text = await chosen.text()
    setFile({ name: chosen.name, size: chosen.size, text })
    setMade(undefined)
    setCheck(undefined)
    await run(kind, text, true)
  }
  const faults = new Map(
    check !== undefined && 'error' in check
      ? check.error.details.flatMap(({ path, message }): [number, string][] => {
          const line = LINE.exec(path)?.[1]
          return line === undefined ? [] : [[Number(line), message]]
        })
      : [],
  )
  const lines = file?.text.split(/\r?\n/) ?? []
  const shown = [...new Set([...faults.keys(), ...lines.keys().map((index) => index + 1)])]
    .slice(0, PREVIEW_LINES)
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
              if (file !== undefined) void run(next, file.text, true)
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
        </div>
        <div
          className="drop"
          role="group"
          aria-label="CSV file"
          onDragOver={(event) => event.preventDefault()}
          onDrop={(event) => {
            event.preventDefault()
            const [dropped] = event.dataTransfer.files
            if (dropped !== undefined) void choose(dropped)
          }}
        >
          <div>{file === undefined ? 'Drop a CSV file here' : `${file.name}, ${formatBytes(file.size)}`}</div>
          <Button onClick={() => input.current?.click()}>
            {file === undefined ? 'Choose a file' : 'Choose another'}
          </Button>
          <input
            ref={input}
            type="file"
            accept=".csv,text/csv"
            className="visually-hidden"
            tabIndex={-1}
            aria-label="CSV file to import"
            onChange={(event) => {
              const [chosen] = event.target.files ?? []
              if (chosen !== undefined) void choose(chosen)
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
          {formatCount(made)} {kind} are created.
        </Notice>
      ) : check === undefined ? null : 'error' in check ? (
        <Notice tone="bad">
          Nothing was created: {check.error.message}.
          {faults.size === 0 ? '' : ` ${formatCount(faults.size)} lines are marked below.`}
        </Notice>
      ) : (
        <Notice
          tone="ok"
          actions={
            <Button
              kind="primary"
              busy={isBusy}
              onClick={() => void (file === undefined ? undefined : run(kind, file.text, false))}
            >
              Create {formatCount(check.total)} {kind}
            </Button>
          }
        >
          The file is right: {formatCount(check.total)} {kind}. All are created together, or none.
        </Notice>
      )}
      {file === undefined ? null : (
        <Card
          title={
            lines.length > PREVIEW_LINES
              ? `The first ${PREVIEW_LINES} of ${formatCount(lines.length)} lines`
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
                    <td>{faults.has(number) ? <span className="bad-text">{faults.get(number)}</span> : ''}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </Card>
      )}
    </>
  )
}
