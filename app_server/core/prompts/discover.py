def discover_prompts(path): return []
