/** The recipes of a guide: files and shell lines of its sections, in their order. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

export const GUIDES = join(import.meta.dirname, '..', '..', 'docs', 'guides', 'modules')

export type Step =
  /** A block with a path after its language: ```go hello.go */
  | { kind: 'file'; path: string; content: string }
  /** `expected`: what stands after `#`. */
  | { kind: 'line'; command: string; expected: string | undefined }

export type Section = { title: string; steps: Step[]; lines: Extract<Step, { kind: 'line' }>[] }

const FENCE = /^```(.*)$/
const EXPECTED = /\s{2,}# (.*)$/

export type Guide = { sections: Section[]; installLines: string[] }

export function readGuide(name: string): Guide {
  const sections: Section[] = []
  const installLines: string[] = []
  let block: { words: string[]; lines: string[] } | undefined
  for (const line of readFileSync(join(GUIDES, `${name}.md`), 'utf8').split('\n')) {
    const [, info] = FENCE.exec(line) ?? []
    if (block === undefined && line.startsWith('## ')) sections.push({ title: line.slice(3), steps: [], lines: [] })
    else if (block === undefined && info !== undefined) block = { words: info.split(' '), lines: [] }
    else if (block !== undefined && info !== undefined) {
      const [language = '', argument] = block.words
      if (language === 'sh' && argument === 'install') installLines.push(...block.lines)
      else sections.at(-1)?.steps.push(...stepsOf(language, argument, block.lines))
      block = undefined
    } else block?.lines.push(line)
  }
  for (const section of sections) section.lines = section.steps.filter((step) => step.kind === 'line')
  return { sections: sections.filter(({ steps }) => steps.length > 0), installLines }
}

function stepsOf(language: string, path: string | undefined, lines: string[]): Step[] {
  if (path !== undefined) return [{ kind: 'file', path, content: `${lines.join('\n')}\n` }]
  if (language !== 'sh') return []
  return lines.map((line) => ({
    kind: 'line',
    command: line.replace(EXPECTED, ''),
    expected: EXPECTED.exec(line)?.[1],
  }))
}
