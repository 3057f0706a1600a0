/** Translates with the rows of `table.ts`. Only what receives a request or makes an answer imports it. */
import { ANSWERS, EMPTY, FIELDS, WORDS } from './table.ts'

export { PATHS, REFUSED } from './table.ts'
export type { OlderPath, PathParams } from './table.ts'

type Fields = typeof FIELDS
type NewerName<Place extends keyof Fields> = Fields[Place][number]['newer']
type OlderName<Place extends keyof Fields, Newer> = Extract<Fields[Place][number], { newer: Newer }>['older']
type Name<Place extends keyof Fields, Newer> = Newer | OlderName<Place, Newer>

/** The newer name of a field and its older ones, in the order of their precedence. */
export function namesOf<Place extends keyof Fields, Newer extends NewerName<Place>>(
  place: Place,
  newer: Newer,
): readonly Name<Place, Newer>[] {
  const older = FIELDS[place].filter((row) => row.newer === newer).map((row) => row.older)
  return [newer, ...older] as Name<Place, Newer>[]
}

/** The value of a field under the first of its names that the body has. Undefined without any of them. */
export function givenUnder<Body extends object, Names extends string & keyof Body>(
  body: Body,
  names: readonly Names[],
): Body[Names] | undefined {
  const name = names.find((one) => body[one] !== undefined)
  return name === undefined ? undefined : body[name]
}

type Words = typeof WORDS

/** The newer word for an older one. Any other word is unchanged. */
export function newerWord(place: keyof Words, word: string): string {
  const rows: readonly { older: string; newer: string }[] = WORDS[place]
  return rows.find(({ older }) => older === word)?.newer ?? word
}

/** The newer words that an older one stands for. Any other word stands for itself. */
export const newerWords = (place: keyof Words, word: string): string[] => newerWord(place, word).split(' or ')

/** The older word for a newer one. Any other word is unchanged. */
export function olderWord(place: keyof Words, word: string): string {
  const rows: readonly { older: string; newer: string }[] = WORDS[place]
  return rows.find(({ newer }) => newer === word)?.older ?? word
}

type Answers = typeof ANSWERS
type Row<Place extends keyof Answers> = Answers[Place][number]
type WithOlder<Place extends keyof Answers, Answer> = Answer & {
  [Older in Row<Place>['older']]: Answer[Extract<Row<Place>, { older: Older }>['newer'] & keyof Answer]
}

/** The answer with its older names beside the newer ones. */
export function withOlderNames<Place extends keyof Answers, Answer extends object>(
  place: Place,
  answer: Answer & Record<Row<Place>['newer'], unknown>,
): WithOlder<Place, Answer> {
  const older = ANSWERS[place].map((row) => [row.older, (answer as Record<string, unknown>)[row.newer]])
  return { ...answer, ...Object.fromEntries(older) } as WithOlder<Place, Answer>
}

/** The body without the fields whose text is empty where that means no value. */
export function withoutEmpty<Body extends object>(place: keyof typeof EMPTY, body: Body): Body {
  const isEmpty = ([name, value]: [string, unknown]) => value === '' && EMPTY[place].some(({ older }) => older === name)
  const fields = Object.entries(body)
  return fields.some(isEmpty) ? (Object.fromEntries(fields.filter((field) => !isEmpty(field))) as Body) : body
}
