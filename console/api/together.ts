/** Lookups that are wanted at about the same time share their requests. */

/** Lookups within this time are asked for together. */
const TOGETHER_MS = 20
/** Ids of one request. */
export const MAX_IDS = 100

/** `list` answers what it knows of up to `MAX_IDS` ids, separated by commas. Null: it knows nothing of the id. */
export function together<T>(list: (domain: string, ids: string) => Promise<readonly (readonly [string, T])[]>) {
  const waiting = new Map<string, { readonly ids: Set<string>; readonly answers: Promise<Map<string, T>> }>()
  const begin = (domain: string) => {
    const ids = new Set<string>()
    const ask = async () => {
      waiting.delete(domain)
      const all = [...ids]
      const pages = Array.from({ length: Math.ceil(all.length / MAX_IDS) }, (_none, page) =>
        list(domain, all.slice(page * MAX_IDS, (page + 1) * MAX_IDS).join(',')),
      )
      return new Map((await Promise.all(pages)).flat())
    }
    const answers = new Promise<void>((resolve) => {
      setTimeout(resolve, TOGETHER_MS)
    }).then(ask)
    const batch = { ids, answers }
    waiting.set(domain, batch)
    return batch
  }
  return async (domain: string, id: string): Promise<T | null> => {
    const { ids, answers } = waiting.get(domain) ?? begin(domain)
    ids.add(id)
    return (await answers).get(id) ?? null
  }
}
