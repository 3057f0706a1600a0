/** The metrics of several processes as one text: each metric once, with the samples of every process. */
import { createTurns } from '../turns.ts'

type Family = { head: string; samples: string[] }

/** The place where the text of the next metric begins. */
const NEXT_FAMILY = /^(?=# HELP )/m

/** Takes texts in the format of Prometheus whose samples have different labels. Works in turns of the event loop. */
export async function mergeMetrics(texts: readonly string[]): Promise<string> {
  const turns = createTurns()
  const families = new Map<string, Family>()
  for (const text of texts) {
    for (const part of text.split(NEXT_FAMILY)) {
      if (turns.isOver) await turns.next()
      const lines = part.split('\n').filter((line) => line !== '')
      const name = lines[0]?.split(' ', 3)[2]
      if (name === undefined) continue
      const family = families.get(name) ?? {
        head: lines.filter((line) => line.startsWith('# ')).join('\n'),
        samples: [],
      }
      family.samples.push(...lines.filter((line) => !line.startsWith('#')))
      families.set(name, family)
    }
  }
  return [...families.values()].map(({ head, samples }) => `${[head, ...samples].join('\n')}\n`).join('\n')
}
