/** Light, dark, or as the system. */
import { useSyncExternalStore } from 'react'

export type Theme = 'light' | 'dark' | 'system'
const KEY = 'skein-theme'
const listeners = new Set<() => void>()

function read(): Theme {
  const stored = localStorage.getItem(KEY)
  return stored === 'light' || stored === 'dark' ? stored : 'system'
}

let theme = read()

function apply(): void {
  if (theme === 'system') delete document.documentElement.dataset['theme']
  else document.documentElement.dataset['theme'] = theme
  for (const listener of listeners) listener()
}

export function setTheme(next: Theme): void {
  theme = next
  localStorage.setItem(KEY, next)
  apply()
}

apply()
const system = matchMedia('(prefers-color-scheme: dark)')
system.addEventListener('change', apply)

const subscribe = (listener: () => void) => {
  listeners.add(listener)
  return () => void listeners.delete(listener)
}
export const useTheme = (): Theme => useSyncExternalStore(subscribe, () => theme)
export const isDark = () => (theme === 'system' ? system.matches : theme === 'dark')
export const useIsDark = (): boolean => useSyncExternalStore(subscribe, isDark)
