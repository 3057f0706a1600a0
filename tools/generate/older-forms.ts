/** The generated tables of docs/older-forms.md: the rows of older/table.ts. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ANSWERS, EMPTY, FIELDS, PATHS, REFUSED, ROUTES, RULES, WORDS } from '#older/table.ts'
import type { OlderForm } from '#older/table.ts'
import { replaceParts } from './parts.ts'

export const OLDER_FORMS = 'docs/older-forms.md'
const ROOT = join(import.meta.dirname, '..', '..')
const PATHS_PLACE = 'api/legacy-routes.ts'
const REFUSED_PLACE = 'manager/tasks/legacy-fields.ts'

export type PlacedForm = OlderForm & { place: string }
type ByPlace = Readonly<Record<string, readonly OlderForm[]>>

const placed = (rows: ByPlace): PlacedForm[] =>
  Object.entries(rows).flatMap(([place, forms]) => forms.map((form) => ({ ...form, place })))

/** The rows of each table of the document, with the file that translates them. */
export const OLDER_ROWS: Readonly<Record<string, readonly PlacedForm[]>> = {
  paths: PATHS.map((row) => ({ ...row, place: PATHS_PLACE })),
  routes: placed(ROUTES),
  fields: placed(FIELDS),
  answers: placed(ANSWERS),
  words: placed(WORDS),
  empty: placed(EMPTY),
  refused: REFUSED.map((row) => ({ ...row, place: REFUSED_PLACE })),
  rules: placed(RULES),
}

/** The document with its generated tables. Throws if a marker is missing. */
export function renderOlderForms(): string {
  const parts = Object.entries(OLDER_ROWS).map(([name, rows]) => [name, renderRows(rows)])
  return replaceParts(OLDER_FORMS, readFileSync(join(ROOT, OLDER_FORMS), 'utf8'), Object.fromEntries(parts))
}

function renderRows(rows: readonly PlacedForm[]): string {
  const cells = rows.map(
    ({ older, newer, place, client, test }) =>
      `| \`${older}\` | ${textOf(newer)} | \`${place}\` | ${client} | ${test} |`,
  )
  return ['| Older | Newer | Translated in | Client | Test |', '|---|---|---|---|---|', ...cells, ''].join('\n')
}

/** Names are code, descriptions are text. */
const textOf = (newer: string) => (newer.includes(' ') ? newer : `\`${newer}\``)
