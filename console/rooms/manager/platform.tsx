/** Readiness, the database and all workers, for administrators of the platform. */
import { useQuery } from '@tanstack/react-query'
import { useEffect } from 'react'
import { query } from '../../api/queries.ts'
import { Card, Facts, State, Time, formatBytes, useNow } from '../../design/display.tsx'
import { QueryView } from '../../shell/states.tsx'
import { WorkerList } from './worker-list.tsx'

const REFRESH_MS = 5_000

/** `skein doctor` warns from the same age on. */
const OLD_BACKUP_MS = 8 * 86_400_000

function BackupAge({ at }: { at: string }) {
  const now = useNow(REFRESH_MS)
  const isOld = now - Date.parse(at) > OLD_BACKUP_MS
  return (
    <State tone={isOld ? 'warn' : 'ok'}>
      <Time at={at} />
    </State>
  )
}

export function Platform() {
  const health = useQuery({ ...query('GET /health', { isPublic: true }), refetchInterval: REFRESH_MS })
  const database = useQuery({ ...query('GET /health/database'), refetchInterval: REFRESH_MS })
  useEffect(() => {
    document.title = 'Platform · Skein'
  }, [])
  return (
    <>
      <div className="page-head">
        <h1>Platform</h1>
      </div>
      <div className="grid">
        <Card title="Program" className="half">
          <QueryView result={health}>
            {({ status, version, commit, description }) => (
              <Facts
                rows={[
                  [
                    'State',
                    <State key="state" tone={status === 'pass' ? 'ok' : 'bad'}>
                      {status === 'pass' ? 'Running' : status}
                    </State>,
                  ],
                  ['Service', description],
                  ['Version', version],
                  ['Commit', <code key="commit">{commit.slice(0, 12)}</code>],
                ]}
              />
            )}
          </QueryView>
        </Card>
        <Card title="Database" className="half">
          <QueryView result={database}>
            {(facts) => (
              <Facts
                rows={[
                  ['PostgreSQL', `${facts.version}, ${facts.is_embedded ? 'embedded' : 'external'}`],
                  ['Size', formatBytes(facts.size_bytes)],
                  facts.disk === undefined
                    ? undefined
                    : ['Free disk', `${formatBytes(facts.disk.free_bytes)} of ${formatBytes(facts.disk.total_bytes)}`],
                  [
                    'Durability',
                    facts.settings.fsync === 'on' && facts.settings.full_page_writes === 'on' ? (
                      <State key="durable" tone="ok">
                        Durable
                      </State>
                    ) : (
                      <State key="durable" tone="bad">
                        fsync or full_page_writes is off
                      </State>
                    ),
                  ],
                  [
                    'Last backup',
                    facts.backups.last_at === undefined ? (
                      <State key="backup" tone="warn">
                        none yet
                      </State>
                    ) : (
                      <BackupAge key="backup" at={facts.backups.last_at} />
                    ),
                  ],
                  facts.backups.archive === undefined
                    ? undefined
                    : ['Archive of the log', <Time key="archive" at={facts.backups.archive.last_at} />],
                  ['Nodes', String(facts.nodes.length)],
                ]}
              />
            )}
          </QueryView>
        </Card>
      </div>
      <WorkerList domain={undefined} />
    </>
  )
}
