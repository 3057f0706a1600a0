/** The modules that the tasks of a domain use: uploads, and what was fetched from registries. */
import { Link } from '@tanstack/react-router'
import { useEffect } from 'react'
import { call } from '../../api/call.ts'
import type { RegistryModule } from '../../api/operations.ts'
import { Id } from '../../design/controls.tsx'
import { Card, Empty, State, Time, formatBytes, formatCount } from '../../design/display.tsx'
import { paths } from '../../paths.ts'
import { Filters } from '../../shell/filters.tsx'
import { DataTable } from '../../shell/table.tsx'
import { useDomainId, useViews } from '../../shell/url.ts'

const REFRESH_MS = 10_000
const SOURCES = ['registry', 'upload'] as const

export function Modules() {
  const domain = useDomainId()
  const [views] = useViews()
  const source = SOURCES.find((one) => one === views['source'])
  const filters = { domain_id: domain, source }
  useEffect(() => {
    document.title = 'Modules · Skein'
  }, [])
  return (
    <>
      <div className="page-head">
        <h1 className="grow">Modules</h1>
        <Link className="button primary" to={paths.tryModule(domain)}>
          Try a module
        </Link>
      </div>
      <Filters fields={[{ name: 'source', label: 'Source', options: SOURCES }]} hasName={false} />
      <DataTable<RegistryModule>
        label="Modules"
        queryKey={['GET /modules', filters]}
        refetchMs={REFRESH_MS}
        fetchPage={async ({ signal, ...page }) => {
          const found = await call('GET /modules', { query: { ...filters, ...page }, signal })
          return { total: found.total, rows: found.modules }
        }}
        rowId={({ digest, domain_id: owner, source: from, reference }) =>
          [digest, owner, from, reference].filter((part) => part !== undefined).join(' ')
        }
        columns={[
          {
            key: 'module',
            title: 'Module',
            width: 'minmax(180px, 2fr)',
            cell: ({ image_url: reference, digest }) => (
              <span title={digest}>{reference ?? <code>{digest.slice(0, 19)}…</code>}</span>
            ),
          },
          { key: 'digest', title: 'Digest', width: '130px', isMinor: true, cell: ({ digest }) => <Id id={digest} /> },
          { key: 'source', title: 'Source', width: '90px', cell: ({ source: from }) => from },
          { key: 'size', title: 'Size', width: '90px', cell: ({ size }) => formatBytes(size) },
          {
            key: 'signed',
            title: 'Signature',
            width: '110px',
            isMinor: true,
            cell: ({ signed }) =>
              signed === undefined ? null : signed ? <State tone="ok">Signed</State> : <State tone="idle">None</State>,
          },
          {
            key: 'cached',
            title: 'Cached by',
            width: 'minmax(110px, 1fr)',
            isMinor: true,
            cell: ({ cached }) => {
              const names = cached.workers.map(({ name }) => name)
              const count = names.length + (cached.proxy === true ? 1 : 0)
              const all = [...(cached.proxy === true ? ['the module proxy'] : []), ...names].join(', ')
              return count === 0 ? <span className="muted">none</span> : <span title={all}>{formatCount(count)}</span>
            },
          },
          {
            key: 'used',
            title: 'Last used',
            width: '110px',
            isMinor: true,
            cell: ({ last_used_at: at }) => <Time at={at} />,
          },
        ]}
        empty={
          <Card>
            {source === undefined ? (
              <Empty icon="module" title="No modules yet">
                Upload a module to a task, or let a task name one of a registry.
              </Empty>
            ) : (
              <Empty icon="search" title={`No module from ${source === 'upload' ? 'an upload' : 'a registry'}`} />
            )}
          </Card>
        }
      />
    </>
  )
}
