/** Keys of the whole console. They are quiet while the user types, and below a dialog. */
import { useEffect } from 'react'

const isTyping = (target: EventTarget | null) =>
  target instanceof HTMLElement && (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.isContentEditable)

const SEQUENCE_MS = 1_200
/** The first of two keys in turn: the second one has no meaning of its own then. */
const PREFIX = 'g'

type Pressed = { key: string; atMs: number }
/** The newest key, and the one before it; every listener of a key sees the same. */
let newest: Pressed | undefined
let before: Pressed | undefined

function note(pressed: Pressed): void {
  if (newest?.atMs !== pressed.atMs) before = newest
  newest = pressed
}

/** Whether the key is the second of two keys in turn. */
export function isSecondKey({ timeStamp }: { timeStamp: number }): boolean {
  const last = newest?.atMs === timeStamp ? before : newest
  return last?.key === PREFIX && timeStamp - last.atMs < SEQUENCE_MS
}

/** `keys`: a key (`/`), a chord (`mod+k`) or two keys in turn (`g c`). */
export function useKeys(keys: Readonly<Record<string, () => void>>): void {
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.defaultPrevented) return
      const isChord = event.metaKey || event.ctrlKey
      if (event.altKey || (isTyping(event.target) && !isChord)) return
      if (!isChord && document.querySelector('dialog[open]') !== null) return
      const name = isChord ? `mod+${event.key.toLowerCase()}` : event.key
      const action = keys[isSecondKey(event) ? `${PREFIX} ${name}` : name]
      note({ key: name, atMs: event.timeStamp })
      if (action === undefined) return
      event.preventDefault()
      action()
    }
    document.addEventListener('keydown', onKeyDown)
    return () => document.removeEventListener('keydown', onKeyDown)
  })
}
