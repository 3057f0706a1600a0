/** Which of the patterns of addresses fits a path, before the router is there. */

export type Match<T> = { readonly screen: T; readonly parts: Readonly<Record<string, string>> }

const partsOf = (path: string) => path.split('/').filter((part) => part !== '')
const isVariable = (part: string) => part.startsWith('$')

/** Of several that fit, the one with the fewest parts that may be anything. */
export function matchOf<T extends { readonly path: string }>(
  screens: readonly T[],
  path: string,
): Match<T> | undefined {
  const given = partsOf(path)
  const fitting = screens.flatMap((screen): Match<T>[] => {
    const wanted = partsOf(screen.path)
    if (wanted.length !== given.length || !wanted.every((part, at) => isVariable(part) || part === given[at])) return []
    const variables = wanted.flatMap((part, at) => (isVariable(part) ? [[part.slice(1), given[at] ?? '']] : []))
    return [{ screen, parts: Object.fromEntries(variables) as Record<string, string> }]
  })
  const count = ({ parts }: Match<T>) => Object.keys(parts).length
  return fitting.toSorted((one, other) => count(one) - count(other))[0]
}
