"""What every experiment needs: datasets' pages, pictures, claims, timing."""
