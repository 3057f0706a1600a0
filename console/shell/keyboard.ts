/** Keys of the whole console. They are quiet while the user types, and below a dialog. */
import { useEffect } from 'react'

const isTyping = (target: EventTarget | null) =>
  target instanceof HTMLElement && (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.isContentEditable)

const SEQUENCE_MS = 1_200

/** `keys`: a key (`/`), a chord (`mod+k`) or two keys in turn (`g c`). */
export function useKeys(keys: Readonly<Record<string, () => void>>): void {
  useEffect(() => {
    let first: { key: string; atMs: number } | undefined
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.defaultPrevented) return
      const isChord = event.metaKey || event.ctrlKey
      if (event.altKey || (isTyping(event.target) && !isChord)) return
      if (!isChord && document.querySelector('dialog[open]') !== null) return
      const name = isChord ? `mod+${event.key.toLowerCase()}` : event.key
      const sequence = first !== undefined && event.timeStamp - first.atMs < SEQUENCE_MS ? `${first.key} ${name}` : name
      const action = keys[sequence] ?? keys[name]
      first = { key: name, atMs: event.timeStamp }
      if (action === undefined) return
      first = undefined
      event.preventDefault()
      action()
    }
    document.addEventListener('keydown', onKeyDown)
    return () => document.removeEventListener('keydown', onKeyDown)
  })
}
