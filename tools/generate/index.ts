/** Everything that is made from something else and committed: path below the root -> text as it should be. */
import { renderManPage } from '#cli/man-page.ts'
import { ARCHITECTURE, renderArchitecture } from './architecture.ts'
import { DECISIONS, renderDecisions } from './decisions.ts'
import { startFullApp } from './full-app.ts'
import { generateProto } from './proto.ts'
import { dumpSchema } from './schema-dump.ts'
import { openScratchDatabase } from './scratch-database.ts'
import { renderSettings } from './settings-table.ts'

export { PROGRAM_SETTINGS, settingRows } from './settings-table.ts'

/** Whatever lies here and is not generated is left over from an earlier generation. */
export const GENERATED_FOLDERS = ['proto/gen'] as const

export async function generateAll(): Promise<Map<string, string>> {
  const [proto, fromDatabase] = await Promise.all([generateProto(), generateFromDatabase()])
  return new Map([
    ...proto,
    ...fromDatabase,
    ['docs/settings.md', renderSettings()],
    ['docs/skein.1', await renderManPage()],
    [ARCHITECTURE, renderArchitecture()],
    [DECISIONS, renderDecisions()],
  ])
}

async function generateFromDatabase(): Promise<Map<string, string>> {
  await using database = await openScratchDatabase()
  const schema = await dumpSchema(database.client)
  await using full = await startFullApp(database.address)
  const document = await full.app.inject({ method: 'GET', url: '/openapi.json' })
  if (document.statusCode !== 200) throw new Error(`/openapi.json answered ${document.statusCode}: ${document.body}`)
  return new Map([
    ['migrations/schema.sql', schema],
    ['openapi.json', `${JSON.stringify(document.json(), undefined, 1)}\n`],
  ])
}
