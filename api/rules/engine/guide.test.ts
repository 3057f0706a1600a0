/** The expressions and templates of the guide are accepted, and its table of refusals is right. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { compileExpression } from './expression.ts'
import { FUNCTIONS } from './language.ts'
import { compileJsonTemplate, compileTextTemplate } from './template.ts'
import { VARIABLE_TYPES } from './variables.ts'

const GUIDE = readFileSync(join(import.meta.dirname, '../../../docs/guides/rule-expressions.md'), 'utf8')
const blocksOf = (language: string) =>
  [...GUIDE.matchAll(new RegExp(`\`\`\`${language}\\n(.*?)\`\`\``, 'gs'))].map(([, text = '']) => text.trim())

test('each condition of the guide is accepted', () => {
  const conditions = blocksOf('cel').flatMap((block) => block.split('\n'))
  expect(conditions.length).toBeGreaterThan(10)
  for (const condition of conditions) expect(compileExpression(condition, 'boolean').source).toBe(condition)
})

test('each template of the guide is accepted', () => {
  const [text] = blocksOf('text').filter((block) => block.includes('{{'))
  expect(compileTextTemplate(text ?? '').source).toContain('{{ round(value, 1) }}')
  expect(compileJsonTemplate(blocksOf('json')[0] ?? '').windows).toHaveLength(1)
})

test('the guide names each function and variable', () => {
  const missing = [...Object.keys(FUNCTIONS), ...Object.keys(VARIABLE_TYPES)].filter(
    (name) => !new RegExp(`[\`. ]${name}\\b`).test(GUIDE),
  )
  expect(missing).toEqual([])
})
