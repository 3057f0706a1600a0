/** All generated files under version control: path below the root -> expected text. */
import { renderManPage } from '#cli/man-page.ts'
import { completeDocument } from '#http/index.ts'
import type { Document } from '#http/index.ts'
import { ARCHITECTURE, renderArchitecture } from './architecture.ts'
import { CONSOLE_OPERATIONS, renderConsoleOperations } from './console-operations.ts'
import { DECISIONS, renderDecisions } from './decisions.ts'
import { CADDYFILE, renderCaddyfile } from './edge-paths.ts'
import { ERRORS_GUIDE, renderErrorsGuide } from './errors-guide.ts'
import { startFullApp } from './full-app.ts'
import { renderMetrics } from './metrics-table.ts'
import { OLDER_FORMS, renderOlderForms } from './older-forms.ts'
import { renderDocument } from './openapi-text.ts'
import { generateProto } from './proto.ts'
import { dumpSchema } from './schema-dump.ts'
import { openScratchDatabase } from './scratch-database.ts'
import { renderSettings } from './settings-table.ts'

export { PROGRAM_METRICS, declarationsOf } from './metrics-table.ts'
export { OLDER_ROWS } from './older-forms.ts'
export { PROGRAM_SETTINGS, settingRows } from './settings-table.ts'

/** A file in these folders that is not generated is stale. */
export const GENERATED_FOLDERS = ['proto/gen'] as const

export async function generateAll(): Promise<Map<string, string>> {
  const [proto, fromDatabase] = await Promise.all([generateProto(), generateFromDatabase()])
  return new Map([
    ...proto,
    ...fromDatabase,
    ['docs/settings.md', renderSettings()],
    ['docs/metrics.md', renderMetrics()],
    ['docs/skein.1', await renderManPage()],
    [ARCHITECTURE, renderArchitecture()],
    [DECISIONS, renderDecisions()],
    [ERRORS_GUIDE, renderErrorsGuide()],
    [OLDER_FORMS, renderOlderForms()],
  ])
}

async function generateFromDatabase(): Promise<Map<string, string>> {
  await using database = await openScratchDatabase()
  const schema = await dumpSchema(database.client)
  await using full = await startFullApp(database.address)
  const document = await full.app.inject({ method: 'GET', url: '/openapi.json' })
  if (document.statusCode !== 200) throw new Error(`/openapi.json answered ${document.statusCode}: ${document.body}`)
  const published = document.json<Document>()
  const ofManager = new Set(full.managerRoutes)
  const served = {
    platform: full.routes.filter((route) => !ofManager.has(route)).map(({ url }) => url),
    manager: full.managerRoutes.map(({ url }) => url),
  }
  return new Map([
    ['migrations/schema.sql', schema],
    ['openapi.json', renderDocument(published)],
    [CONSOLE_OPERATIONS, renderConsoleOperations(completeDocument(published))],
    [CADDYFILE, renderCaddyfile(served)],
  ])
}
