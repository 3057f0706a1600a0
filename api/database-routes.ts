/** `GET /health/database`: what an operator must know about the database, for platform administrators. */
import { Type } from 'typebox'
import { responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import type { DatabaseDiagnosis } from '#infrastructure/index.ts'
import { formatTime } from '#core/time.ts'
import type { Identity } from './identity/index.ts'
import type { ArchiveState } from './messages/index.ts'

const Count = Type.Integer({ minimum: 0 })

const DatabaseHealth = Type.Object(
  {
    version: Type.String({ description: 'Version of the PostgreSQL server' }),
    is_embedded: Type.Boolean({ description: 'True for the server that Skein starts itself' }),
    is_replica: Type.Boolean({ description: 'True for a server that follows another one and cannot be written to' }),
    size_bytes: Count,
    disk: Type.Optional(
      Type.Object({ free_bytes: Count, total_bytes: Count }, { description: 'File system of the embedded server' }),
    ),
    settings: Type.Object(
      {
        fsync: Type.String(),
        full_page_writes: Type.String(),
        synchronous_commit: Type.String(),
        synchronous_standby_names: Type.String(),
        data_checksums: Type.String(),
      },
      {
        description:
          'Settings that decide whether an acknowledged write survives a crash, as a session of Skein sees them',
      },
    ),
    standbys: Type.Array(
      Type.Object({
        name: Type.String(),
        state: Type.String(),
        sync_state: Type.String(),
        lag_bytes: Type.Union([Type.Integer(), Type.Null()], {
          description: 'Write-ahead log that is not replayed there yet',
        }),
      }),
    ),
    oldest_write: Type.Optional(
      Type.Object(
        { seconds: Type.Number(), application: Type.String() },
        { description: 'The longest open transaction that has written: readers of the changelog wait for it' },
      ),
    ),
    backups: Type.Object(
      {
        last_at: Type.Optional(
          Type.String({ format: 'date-time', description: 'When `npm run backup` last completed' }),
        ),
        installed_at: Type.Optional(
          Type.String({ format: 'date-time', description: 'When the database was set up or restored' }),
        ),
        archive: Type.Optional(
          Type.Object(
            {
              last_at: Type.Optional(Type.String({ format: 'date-time' })),
              last_failure_at: Type.Optional(Type.String({ format: 'date-time' })),
            },
            { description: 'Set when the server archives its write-ahead log (`archive_mode`)' },
          ),
        ),
      },
      { description: 'What a restore could begin with' },
    ),
    history: Type.Optional(
      Type.Object(
        {
          succeeded_at: Type.String({
            format: 'date-time',
            description: 'When the copy last made progress without a failure, or when the first round began',
          }),
          failure: Type.Optional(
            Type.String({ description: 'What failed in the last round, which is repeated; absent: nothing did' }),
          ),
          waiting_ranges: Type.Integer({ description: 'Ranges of records whose copy is due' }),
          behind_seconds: Type.Number({ description: 'Since when the oldest of them is due' }),
          overdue_files: Type.Integer({ description: 'Files that should have been deleted for an hour or longer' }),
        },
        { description: 'The copy of records for other engines; absent: no node makes one (SKEIN_ARCHIVE_URL)' },
      ),
    ),
    migrations: Type.Object({
      known: Type.Integer({ description: 'Number of the newest migration that this program knows' }),
      applied: Type.Integer({ description: 'Number of the newest migration in the database' }),
      newest: Type.String({ description: 'Number and name of the newest migration in the database' }),
    }),
    nodes: Type.Array(
      Type.Object({ id: Type.String(), kind: Type.String(), version: Type.String(), migration: Type.Integer() }),
      { description: 'Programs on this database that were seen in the last minute' },
    ),
  },
  { $id: 'DatabaseHealth', description: 'State of the database' },
)

/** A time of the database as an optional field. */
const timeField = (name: string, time: string | null | undefined) =>
  time === null || time === undefined ? {} : { [name]: formatTime(time) }

type Deps = {
  identity: Pick<Identity, 'access'>
  diagnose: () => Promise<DatabaseDiagnosis>
  archive: () => Promise<ArchiveState | undefined>
}

export function databaseHealthRoute({ identity, diagnose, archive }: Deps): RoutePlugin {
  return (app) => {
    app.get(
      '/health/database',
      {
        config: { action: 'platform.diagnose' },
        schema: {
          tags: ['health'],
          summary: 'Show the state of the database',
          description: 'Requires a platform administrator. `skein doctor` reads it.',
          response: responses({ 200: DatabaseHealth }),
        },
      },
      async (request) => {
        identity.access.requirePlatformAdmin(request.principal)
        const { isEmbedded, isReplica, sizeBytes, disk, settings, standbys, oldestWrite, backups, ...found } =
          await diagnose()
        const copies = await archive()
        return {
          version: found.version,
          is_embedded: isEmbedded,
          is_replica: isReplica,
          size_bytes: sizeBytes,
          ...(disk === undefined ? {} : { disk: { free_bytes: disk.freeBytes, total_bytes: disk.totalBytes } }),
          settings: {
            fsync: settings.fsync,
            full_page_writes: settings.fullPageWrites,
            synchronous_commit: settings.synchronousCommit,
            synchronous_standby_names: settings.synchronousStandbyNames,
            data_checksums: settings.dataChecksums,
          },
          standbys: standbys.map(({ name, state, syncState, lagBytes }) => ({
            name,
            state,
            sync_state: syncState,
            lag_bytes: lagBytes,
          })),
          ...(oldestWrite === undefined ? {} : { oldest_write: oldestWrite }),
          backups: {
            ...timeField('last_at', backups.lastAt),
            ...timeField('installed_at', backups.installedAt),
            ...(backups.archive === undefined
              ? {}
              : {
                  archive: {
                    ...timeField('last_at', backups.archive.lastAt),
                    ...timeField('last_failure_at', backups.archive.lastFailureAt),
                  },
                }),
          },
          ...(copies === undefined
            ? {}
            : {
                history: {
                  succeeded_at: formatTime(copies.succeededAt),
                  ...(copies.failure === null ? {} : { failure: copies.failure }),
                  waiting_ranges: copies.waiting,
                  behind_seconds: copies.behindSeconds,
                  overdue_files: copies.overdueFiles,
                },
              }),
          migrations: found.migrations,
          nodes: [...found.nodes],
        }
      },
    )
  }
}
